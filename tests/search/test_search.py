import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch import Tensor

from attent.models.model import EncoderDecoder, Memory
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.search.constraints import Constraints
from attent.search.search import Hypothesis, TokenSampler, is_finished, length_penalty, sampling_probs, search, uniforms
from attent.search.settings import SearchSettings
from attent.text.tokenizer import BOS, EOS, PAD, SPECIALS, UNK


@dataclass(frozen=True)
class Echoed:
    source: Tensor
    step: int

    def select(self, rows: Tensor) -> "Echoed":
        return Echoed(self.source[rows], self.step)

    def reorder(self, rows: Tensor) -> "Echoed":
        # what only the source's side decides may not move to another sentence
        assert torch.equal(self.source[rows], self.source)
        return self


class Echo(EncoderDecoder[Echoed]):
    """Says its source again and then EOS; with the forbidden tokens always likelier."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        ends = torch.nn.functional.pad(source, (0, 1)).scatter(1, lengths[:, None], EOS)
        return Memory(ends, lengths)

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        raise NotImplementedError

    def start(self, memory: Memory) -> Echoed:
        return Echoed(memory.features, 0)

    def step(self, state: Echoed, tokens: Tensor) -> tuple[Tensor, Echoed]:
        self.batches.append(len(tokens))
        expected = state.source[:, state.step - 1] if state.step else torch.full_like(tokens, BOS)
        # what a finished or repeated row is given does not matter
        assert state.step == 0 or (tokens == expected).any()
        index = min(state.step, state.source.shape[1] - 1)
        return state.source[:, index, None].float(), Echoed(state.source, state.step + 1)

    def output(self, features: Tensor) -> Tensor:
        logits = torch.nn.functional.one_hot(features[..., 0].long(), 11).float()
        return logits.index_fill(-1, torch.tensor([PAD, BOS]), 5.0)


SOURCE = torch.tensor([[4, 5, 6, 7, 8], [9, 0, 0, 0, 0], [5, 4, 0, 0, 0]])
LENGTHS = torch.tensor([5, 1, 2])
FAR = torch.tensor([31, 31, 31])


def tokens_of(hypotheses: Sequence[Sequence[Hypothesis]]) -> list[list[int]]:
    return [list(best[0].tokens) for best in hypotheses]


def test_each_sentence_ends_at_its_own_stop_or_limit() -> None:
    assert tokens_of(search(Echo(), SOURCE, LENGTHS, Constraints.of(FAR))) == [[4, 5, 6, 7, 8], [9], [5, 4]]
    assert tokens_of(search(Echo(), SOURCE, LENGTHS, Constraints.of(torch.tensor([2, 31, 1])))) == [[4, 5], [9], [5]]
    model = Echo()
    assert search(model, SOURCE[:0], LENGTHS[:0], Constraints.of(FAR[:0])) == []
    assert model.batches == []


def test_finished_sentences_leave_in_eights() -> None:
    lengths = torch.tensor([*[1] * 9, *[3] * 5, *[5] * 5])
    source = torch.full((19, 5), 7).where(torch.arange(5) < lengths[:, None], PAD)
    model = Echo()
    hypotheses = search(model, source, lengths, Constraints.of(lengths + 31))
    assert [len(best[0].tokens) for best in hypotheses] == lengths.tolist()
    assert model.batches == [24, 24, 16, 16, 8, 8]


class EachRowAlone(Echo):
    @property
    def batch_invariant(self) -> bool:
        return True


def test_a_batch_is_not_filled_up_where_each_row_is_computed_alone() -> None:
    model = EachRowAlone()
    search(model, SOURCE, LENGTHS, Constraints.of(FAR))
    assert model.batches == [3, 3, 2, 1, 1, 1]


class Sure(Echo):
    def output(self, features: Tensor) -> Tensor:
        return 99 * torch.nn.functional.one_hot(features[..., 0].long(), 11).float()


def test_hypotheses_move_within_their_own_sentence() -> None:
    lengths = torch.tensor([*[1] * 9, *[3] * 5, *[5] * 5])
    source = (4 + torch.arange(5 * 19) % 7).view(19, 5).where(torch.arange(5) < lengths[:, None], PAD)
    hypotheses = search(Sure(), source, lengths, Constraints.of(lengths + 31), SearchSettings(beam=3))
    assert tokens_of(hypotheses) == [row[:length].tolist() for row, length in zip(source, lengths, strict=True)]


def tiny(
    vocabulary: int = 11, *, sharpness: float = 1.0, position: str = "sinusoidal", dtype: torch.dtype = torch.float32
) -> Transformer:
    """A random model, whose logits are larger than those of a model that has just been made."""
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "width": 16, "feed_forward": 19, "heads": 2}
    settings = TransformerSettings.model_validate(sizes | {"position": position, "share_embeddings": "none"})
    model = Transformer(settings, 13, vocabulary).eval()
    with torch.no_grad():
        model.to_logits.weight.mul_(sharpness)
    return model.to(dtype)


def sources(count: int, longest: int = 16) -> tuple[Tensor, Tensor]:
    lengths = torch.randint(1, longest + 1, (count,))
    return torch.randint(4, 13, (count, longest)).where(torch.arange(longest) < lengths[:, None], PAD), lengths


@torch.no_grad()
def forced(model: Transformer, source: Tensor, lengths: Tensor, tokens: Sequence[int]) -> Tensor:
    """The log-probabilities (T + 1, V) before each of the tokens and after the last."""
    return model.output(model.decode(model.encode(source, lengths), torch.tensor([[BOS, *tokens]])))[0].log_softmax(-1)


def test_a_wide_beam_is_exhaustive_search() -> None:
    torch.manual_seed(1)
    model, limit, source, lengths = tiny(SPECIALS + 2, sharpness=2.0), 4, *sources(2)
    sums: list[dict[tuple[int, ...], float]] = [{}, {}]
    for row, of_row in enumerate(sums):
        for length in range(limit + 1):
            for tokens in product((UNK, SPECIALS, SPECIALS + 1), repeat=length):
                log_probabilities = forced(model, source[row : row + 1], lengths[row : row + 1], tokens)
                numbers = (log_probabilities[index, token].item() for index, token in enumerate((*tokens, EOS)))
                of_row[tokens] = sum(numbers)
    for alpha in (0.0, 0.6, 2.0):
        settings = SearchSettings(beam=3**limit, n_best=7, length_penalty=alpha)
        hypotheses = search(model, source, lengths, Constraints.of(torch.full((2,), limit)), settings)
        for best, of_row in zip(hypotheses, sums, strict=True):
            scores = {tokens: total / length_penalty(len(tokens) + 1, alpha) for tokens, total in of_row.items()}
            expected = sorted(scores, key=lambda tokens: -scores[tokens])[:7]
            assert [hypothesis.tokens for hypothesis in best] == expected, alpha
            expected_scores = pytest.approx([scores[tokens] for tokens in expected], abs=1e-5)
            assert [hypothesis.score for hypothesis in best] == expected_scores, alpha


@pytest.mark.parametrize(("beam", "alpha"), [(2, 0.0), (5, 1.0)])
def test_stopping_early_changes_nothing(beam: int, alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model, limit, (source, lengths) = tiny(sharpness=3.0), torch.full((7,), 12), sources(7)
    settings = SearchSettings(beam=beam, n_best=2, length_penalty=alpha)
    early = search(model, source, lengths, Constraints.of(limit), settings)
    monkeypatch.setattr("attent.search.search.LONGEST_PACKED", 0)
    monkeypatch.setattr("attent.search.search.is_finished", lambda finished, running, *rest: running == -torch.inf)
    assert search(model, source, lengths, Constraints.of(limit), settings) == early


def test_a_beam_of_one_is_greedy() -> None:
    model, (source, lengths) = tiny(sharpness=3.0), sources(5)
    for alpha in (0.0, 1.0):
        hypotheses = search(model, source, lengths, Constraints.of(lengths + 7), SearchSettings(length_penalty=alpha))
        for row, tokens in enumerate(tokens_of(hypotheses)):
            log_probabilities = forced(model, source[row : row + 1], lengths[row : row + 1], tokens)
            log_probabilities[:, [PAD, BOS]] = -torch.inf
            expected = log_probabilities.argmax(-1).tolist()
            assert expected[: len(tokens)] == tokens
            assert expected[-1] == EOS or len(tokens) == lengths[row] + 7


def test_the_best_come_first_and_are_what_forced_decoding_gives() -> None:
    model, (source, lengths) = tiny(sharpness=3.0), sources(5)
    settings = SearchSettings(beam=4, n_best=3, length_penalty=0.8)
    for row, best in enumerate(search(model, source, lengths, Constraints.of(lengths + 3), settings)):
        assert len({hypothesis.tokens for hypothesis in best}) == 3
        assert best == sorted(best, key=lambda hypothesis: -hypothesis.score)
        for hypothesis in best:
            emitted = torch.tensor([*hypothesis.tokens, EOS])
            log_probabilities = forced(model, source[row : row + 1], lengths[row : row + 1], hypothesis.tokens)
            total = log_probabilities.gather(1, emitted[:, None]).sum().item()
            assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)
            assert hypothesis.length_penalty == ((5 + len(emitted)) / 6) ** 0.8


@pytest.mark.parametrize("settings", [SearchSettings(), SearchSettings(beam=3, n_best=3)], ids=["greedy", "beam"])
@pytest.mark.parametrize(("position", "dtype"), [("sinusoidal", torch.bfloat16), ("rotary", torch.float32)], ids=str)
def test_a_translation_does_not_depend_on_its_neighbours(
    position: str, dtype: torch.dtype, settings: SearchSettings
) -> None:
    model, (source, lengths) = tiny(sharpness=3.0, position=position, dtype=dtype), sources(21)
    joint = search(model, source, lengths, Constraints.of(lengths + 7), settings)
    for row in range(21):
        length = lengths[row : row + 1]
        (alone,) = search(model, source[row : row + 1], length, Constraints.of(length + 7), settings)
        assert [hypothesis.tokens for hypothesis in alone] == [hypothesis.tokens for hypothesis in joint[row]]


def test_it_is_settled_when_nothing_better_can_come() -> None:
    done = [Hypothesis((4,), -2.0, length_penalty(2, 1.0)), Hypothesis((5, 4), -4.0, length_penalty(3, 1.0))]
    settings = SearchSettings(beam=4, n_best=2, length_penalty=1.0)
    # the longest translation divides by (5 + 8) / 6
    bound = done[1].score * (13 / 6)
    for running, expected in ((bound - 1e-9, True), (bound + 1e-9, False), (-math.inf, True)):
        assert is_finished(done, running, 7, settings) is expected
    assert not is_finished(done, -99.0, 7, settings.model_copy(update={"n_best": 3}))
    # alone the first stop ends it
    alone = SearchSettings(length_penalty=1.0)
    assert is_finished([Hypothesis((), -9.0, 1.0)], -0.1, 9, alone) and not is_finished([], -0.1, 9, alone)


def test_length_penalties_worked_by_hand() -> None:
    assert [length_penalty(1, 0.6), length_penalty(13, 2.0), length_penalty(13, 0.0)] == [1, 9, 1]
    assert length_penalty(13, 2.0, "length") == 169
    assert Hypothesis((4,) * 12, -18.0, length_penalty(13, 2.0)).score == pytest.approx(-2)


TOLD = torch.tensor([0.4, 0.3, 0.2, 0.1, 0.0]).log()[None]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.4, 0.3, 0.2, 0.1, 0]),
        ({"temperature": 0.5}, [16 / 30, 9 / 30, 4 / 30, 1 / 30, 0]),
        ({"top_k": 2}, [4 / 7, 3 / 7, 0, 0, 0]),
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
