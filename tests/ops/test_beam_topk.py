import math

import pytest
import torch

from attent.ops.beam_topk import beam_topk, beam_topk_of_logits, log_mean_softmax, log_softmax
from attent.text.tokenizer import BOS, EOS, PAD


def test_worked_by_hand() -> None:
    prefix_scores = torch.tensor([[-1.0, -2.0]])
    log_probabilities = torch.tensor([[[-3.0, -0.5, -9.0], [-0.25, -4.0, -0.75]]])
    scores, positions = beam_topk(prefix_scores, log_probabilities)
    assert scores.tolist() == [[-1.5, -2.25, -2.75, -4.0]]
    assert positions.tolist() == [[1, 3, 5, 0]]


@pytest.mark.usefixtures("way")
def test_equals_keep_their_order() -> None:
    prefix_scores, log_probabilities = torch.zeros(1, 3), torch.full((1, 3, 101), -2.0)
    log_probabilities[0, 1, 7] = -1.0
    assert beam_topk(prefix_scores, log_probabilities)[1].tolist() == [[108, 0, 1, 2, 3, 4]]
    assert beam_topk(prefix_scores[:, :1], log_probabilities[:, 2:])[1].tolist() == [[0]]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("width", "size"), [(1, 1), (5, 1), (2, 5), (5, 32), (1, 33), (2, 64), (1, 101), (5, 517)])
def test_it_finds_what_sorting_finds(width: int, size: int) -> None:
    prefix_scores, target = -torch.rand(7, width), -torch.randint(9, (7, width, size)).float()
    target[0, :, 1:] = -torch.inf
    scores, positions = beam_topk(prefix_scores, target)
    full = (prefix_scores[..., None] + target).flatten(1)
    order = full.sort(descending=True, stable=True)
    count = 1 if width == 1 else min(2 * width, width * size)
    assert torch.equal(scores, order.values[:, :count])
    real = ~scores.isneginf()
    assert torch.equal(positions[real], order.indices[:, :count][real])
    assert ((positions >= 0) & (positions < width * size)).all()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("width", "size"), [(1, 5), (1, 301), (3, 37), (5, 600)])
def test_logits_are_normalised_over_all_tokens(width: int, size: int) -> None:
    prefix_scores, logits = -torch.rand(7, width), torch.randn(7, width, size) * 5
    prefix_scores[:, 1:2] = -torch.inf
    log_probabilities = logits.double().log_softmax(-1)
    log_probabilities[..., [PAD, BOS]] = -torch.inf
    full = (prefix_scores[..., None].double() + log_probabilities).flatten(1)
    scores, positions = beam_topk_of_logits(prefix_scores, logits, (PAD, BOS), EOS)
    expected = full.topk(scores.shape[1])
    torch.testing.assert_close(scores.double(), expected.values, atol=3e-6, rtol=1e-6)
    real = ~scores.isneginf()
    torch.testing.assert_close(full.gather(1, positions)[real], expected.values[real], atol=3e-6, rtol=1e-6)


@pytest.mark.needs_native
def test_what_is_no_number_ends() -> None:
    scores, positions = beam_topk_of_logits(torch.zeros(1, 1), torch.full((1, 1, 37), torch.nan), (PAD, BOS), EOS)
    assert scores.isnan().all()
    assert positions.tolist() == [[EOS]]


@pytest.mark.usefixtures("way")
def test_the_log_softmax_is_the_one_that_is_added_up() -> None:
    prefix_scores, logits = -torch.rand(35, 1), torch.randn(35, 301) * 5
    expected = beam_topk_of_logits(prefix_scores, logits.clone()[:, None], (PAD, BOS), EOS)
    log_probs = log_softmax(logits.clone())
    torch.testing.assert_close(log_probs, logits.log_softmax(-1), atol=3e-6, rtol=1e-6)
    log_probs[:, [PAD, BOS]] = -torch.inf
    assert all(map(torch.equal, beam_topk(prefix_scores, log_probs[:, None]), expected))
    assert log_softmax(torch.full((1, 37), torch.nan)).isnan().all()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("size", [1, 7, 16, 4001])
def test_the_mean_of_softmax(size: int) -> None:
    torch.manual_seed(0)
    for count in (2, 5):
        logits = 30 * torch.randn(count, 21, size)
        logits[0, 3, 0] = torch.nan
        logits[:, 4] *= 10
        expected = logits.double().log_softmax(-1).logsumexp(0) - math.log(count)
        actual = log_mean_softmax(logits.clone())
        torch.testing.assert_close(actual.double(), expected, atol=1e-4, rtol=1e-5, equal_nan=True)
        logits = 3 * torch.randn(count, 21, size)
        expected = logits.double().log_softmax(-1).logsumexp(0) - math.log(count)
        torch.testing.assert_close(log_mean_softmax(logits).double(), expected, atol=3e-6, rtol=1e-6)
