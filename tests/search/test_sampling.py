import pytest
import torch

from attent.search.search import TokenSampler, sampling_probs, uniforms

TOLD = torch.tensor([0.4, 0.3, 0.2, 0.1, 0.0]).log()[None]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.4, 0.3, 0.2, 0.1, 0]),
        ({"temperature": 0.5}, [16 / 30, 9 / 30, 4 / 30, 1 / 30, 0]),
        ({"top_k": 2}, [4 / 7, 3 / 7, 0, 0, 0]),
        ({"top_k": 9}, [0.4, 0.3, 0.2, 0.1, 0]),
        ({"top_p": 0.69}, [4 / 7, 3 / 7, 0, 0, 0]),
        ({"top_p": 0.71}, [4 / 9, 3 / 9, 2 / 9, 0, 0]),
        ({"top_p": 1e-9}, [1.0, 0, 0, 0, 0]),
        ({"top_k": 3, "top_p": 0.5}, [4 / 7, 3 / 7, 0, 0, 0]),
    ],
)
def test_worked_by_hand(options: dict[str, float], expected: list[float]) -> None:
    torch.testing.assert_close(sampling_probs(TOLD, **options), torch.tensor([expected]))


def test_tokens_come_as_often_as_they_should() -> None:
    count = 20_000
    log_probabilities = torch.randn(1, 1, 11).log_softmax(-1).index_fill(2, torch.tensor([3, 10]), -torch.inf)
    numbers = uniforms(7, [[4, 5, 6]], count, 2)
    scores, tokens = TokenSampler(numbers)(
        torch.full((count, 1), -1.0), log_probabilities.expand(count, 1, 11), torch.arange(count), 1
    )
    expected = count * log_probabilities.softmax(-1)[0, 0]
    observed = tokens.flatten().bincount(minlength=11)
    assert observed[[3, 10]].tolist() == [0, 0]
    possible = expected > 0
    chi_square = ((observed - expected)[possible] ** 2 / expected[possible]).sum().item()
    # 8 degrees of freedom: above 26.1 once in a thousand
    assert chi_square < 26.1
    torch.testing.assert_close(scores, log_probabilities[0, 0][tokens] - 1)


def test_nothing_impossible_is_drawn_at_the_edges() -> None:
    log_probabilities = torch.tensor([[[0.0, 0.5, 0.0, 0.5, 0.0]]]).log().expand(2, 1, 5)
    numbers = torch.tensor([[0.0], [1 - 2.0**-53]], dtype=torch.float64)
    assert TokenSampler(numbers)(torch.zeros(2, 1), log_probabilities, torch.arange(2), 0)[1].tolist() == [[1], [3]]


def test_randomness_belongs_to_a_source() -> None:
    numbers = uniforms(1, [[4, 5], [6]], 2, 3)
    assert numbers.shape == (4, 3)
    assert torch.equal(uniforms(1, [[6]], 2, 3), numbers[2:])
    assert torch.equal(uniforms(1, [[4, 5]], 1, 2), numbers[:1, :2])
    assert len(set(map(tuple, torch.cat((numbers, uniforms(2, [[6]], 2, 3))).tolist()))) == 6
    assert uniforms(1, [], 2, 3).shape == (0, 3)
