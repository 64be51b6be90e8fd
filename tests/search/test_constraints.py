import torch
from torch import Tensor

from attent.search.constraints import Constraints
from attent.text.tokenizer import BOS, EOS, PAD, UNK

VOCABULARY = 7
NOTHING = torch.zeros(2, 0, dtype=torch.long)
FAR = torch.tensor([31, 29])
FREE = {UNK, EOS, 4, 5, 6}


def make_log_probabilities() -> Tensor:
    return torch.arange(2.0 * VOCABULARY).view(2, VOCABULARY) - 99


def left(constraints: Constraints, written: Tensor) -> list[set[int]]:
    """The tokens that each row may still say; nothing else about them may change."""
    before = make_log_probabilities()
    after = constraints.apply(before, written)
    assert torch.equal(before, make_log_probabilities())
    assert torch.equal(after[~after.isneginf()], before[~after.isneginf()])
    assert torch.equal(constraints.apply_(make_log_probabilities(), written), after)
    return [set((~row.isneginf()).nonzero().flatten().tolist()) for row in after]


def test_neither_pad_nor_start_is_ever_said() -> None:
    assert left(Constraints.of(FAR), NOTHING) == [FREE, FREE]
    assert not FREE & {PAD, BOS}


def test_stop_waits_for_the_minimum() -> None:
    constraints = Constraints.of(FAR, minimum_length=2)
    assert left(constraints, torch.tensor([[4], [5]])) == [FREE - {EOS}] * 2
    assert left(constraints, torch.tensor([[4, 4], [5, 5]])) == [FREE] * 2


def test_at_its_limit_a_row_can_only_stop() -> None:
    constraints = Constraints.of(torch.tensor([1, 2]), minimum_length=9)
    assert left(constraints, torch.tensor([[4], [5]])) == [{EOS}, FREE - {EOS}]
    assert left(constraints, torch.tensor([[4, 4], [5, 4]])) == [{EOS}, {EOS}]
    assert left(constraints.select(torch.tensor([1, 1])), torch.tensor([[4], [5]])) == [FREE - {EOS}] * 2


def test_no_ngram_comes_twice() -> None:
    written = torch.tensor([[4, 5, 4, 6, 4], [4, 4, 5, 5, 6]])
    assert left(Constraints.of(FAR, no_repeat_ngram=1), written) == [{UNK, EOS}] * 2
    assert left(Constraints.of(FAR, no_repeat_ngram=2), written) == [FREE - {5, 6}, FREE]
    assert left(Constraints.of(FAR, no_repeat_ngram=3), torch.tensor([[4, 5, 6, 4, 5], [4, 5, 6, 5, 4]])) == [
        FREE - {6},
        FREE,
    ]
    assert left(Constraints.of(FAR, no_repeat_ngram=6), written) == [FREE, FREE]


def test_who_has_nothing_left_to_say_may_stop() -> None:
    written = torch.tensor([[UNK, 4, 5, 6], [UNK, 4, 5, 5]])
    assert left(Constraints.of(FAR, minimum_length=9, no_repeat_ngram=1), written) == [{EOS}, {6}]


def test_a_prefix_comes_first() -> None:
    constraints = Constraints.of(torch.tensor([1, 9]), [[4, 4, 6], [5]], minimum_length=1, no_repeat_ngram=1)
    assert constraints.limits.tolist() == [3, 9]
    assert left(constraints, NOTHING) == [{4}, {5}]
    assert left(constraints, torch.tensor([[4], [5]])) == [{4}, FREE - {5}]
    assert left(constraints, torch.tensor([[4, 4], [5, 6]])) == [{6}, FREE - {5, 6}]
    assert left(constraints, torch.tensor([[4, 4, 6], [5, 6, 4]])) == [{EOS}, FREE - {4, 5, 6}]


def test_no_prefixes_force_nothing() -> None:
    assert Constraints.of(FAR, [[], []]).prefixes.shape == (2, 0)


def test_they_are_free_where_anything_but_pad_and_start_may_come() -> None:
    constraints = Constraints.of(torch.tensor([7, 5]), [[4, 6], []], minimum_length=3)
    assert [constraints.is_unconstrained(step) for step in range(7)] == [False, False, False, True, True, False, False]
    assert not Constraints.of(torch.tensor([9]), no_repeat_ngram=2).is_unconstrained(2)
