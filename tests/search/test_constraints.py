import torch
from torch import Tensor

from attent.search.constraints import Constraints, is_repetitive
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


def test_neither_pad_nor_start_is_ever_said_and_stop_waits_for_the_minimum() -> None:
    assert left(Constraints.of(FAR), NOTHING) == [FREE, FREE]
    assert not FREE & {PAD, BOS}
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
    longer = torch.tensor([[4, 5, 6, 4, 5], [4, 5, 6, 5, 4]])
    assert left(Constraints.of(FAR, no_repeat_ngram=3), longer) == [FREE - {6}, FREE]
    assert left(Constraints.of(FAR, no_repeat_ngram=6), written) == [FREE, FREE]
    # who has nothing left to say may stop
    written = torch.tensor([[UNK, 4, 5, 6], [UNK, 4, 5, 5]])
    assert left(Constraints.of(FAR, minimum_length=9, no_repeat_ngram=1), written) == [{EOS}, {6}]


def test_a_prefix_comes_first() -> None:
    constraints = Constraints.of(torch.tensor([1, 9]), [[4, 4, 6], [5]], minimum_length=1, no_repeat_ngram=1)
    assert constraints.limits.tolist() == [3, 9]
    assert left(constraints, NOTHING) == [{4}, {5}]
    assert left(constraints, torch.tensor([[4], [5]])) == [{4}, FREE - {5}]
    assert left(constraints, torch.tensor([[4, 4], [5, 6]])) == [{6}, FREE - {5, 6}]
    assert left(constraints, torch.tensor([[4, 4, 6], [5, 6, 4]])) == [{EOS}, FREE - {4, 5, 6}]
    assert Constraints.of(FAR, [[], []]).prefixes.shape == (2, 0)


def test_they_are_free_where_anything_but_pad_and_start_may_come() -> None:
    constraints = Constraints.of(torch.tensor([7, 5]), [[4, 6], []], minimum_length=3)
    assert [constraints.is_unconstrained(step) for step in range(7)] == [False, False, False, True, True, False, False]
    assert not Constraints.of(torch.tensor([9]), no_repeat_ngram=2).is_unconstrained(2)


def test_a_loop_is_repetitive_and_a_text_that_says_something_twice_is_not() -> None:
    for loop in ([7], [7, 8], [4, 5, 6, 7, 8]):
        assert is_repetitive([1, 2, 3, *(loop * 30)])
    for tokens in ([], [7] * 14, range(60), [*range(20), *range(20)], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]):
        assert not is_repetitive(tokens)


def test_a_prompt_is_forced_and_counts_no_log_probability() -> None:
    constraints = Constraints.of(torch.tensor([5, 5]), [[7, 8], [7]], prompt_length=1)
    log_probs = torch.randn(2, 9).log_softmax(-1)
    first = constraints.apply(log_probs, torch.zeros(2, 0, dtype=torch.long))
    assert (first.argmax(1).tolist(), first.amax(1).tolist()) == ([7, 7], [0, 0])
    assert first.isinf().sum(1).tolist() == [8, 8]
    # what is forced after it keeps the model's number
    second = constraints.apply(log_probs, torch.tensor([[7], [7]]))
    assert second[0, 8] == log_probs[0, 8]
    assert torch.equal(second[1, EOS:], log_probs[1, EOS:])
