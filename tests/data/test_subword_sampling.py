import itertools
import math
from collections import Counter
from collections.abc import Iterable

import pytest

from attent.data.subword_sampling import MAX_CACHED, BpeDropout, PieceTable, Sampler, SubwordRegularization

# Each piece is its own place here; "c" has none, and is written as the byte 0x63.
PIECES = ["a", "b", "ab", "ba", "aba", "bc", "▁", "▁a"]
BYTES = range(100, 356)
C = 100 + 0x63
DRAWS = 20_011


def vocabulary(**scores: float) -> PieceTable:
    return PieceTable(
        {piece: scores[piece] for piece in PIECES if piece in scores}, {piece: PIECES.index(piece) for piece in scores}, BYTES
    )


# BPE's merges in the order that they were learnt; then characters.
MERGES = vocabulary(ab=-0.0, ba=-1.0, aba=-2.0, a=-3.0, b=-4.0)
LIKELIHOODS = vocabulary(a=-1.5, b=-2.0, ab=-2.5, ba=-4.0, aba=-3.0, bc=-3.5)
SAMPLERS: dict[str, Sampler] = {"bpe": BpeDropout(MERGES), "unigram": SubwordRegularization(LIKELIHOODS)}
WRITTEN_DOWN = {
    "bpe": ["ab a a b", "aba ab", "ab a ab", "aba ab", "aba a b", "aba a b", "aba ab"],
    "unigram": ["aba ab", "aba a b", "a ba ab", "a ba ab", "a ba ab", "aba ab", "ab a ab"],
}
every = pytest.mark.parametrize("kind", SAMPLERS)


def spelt(ids: list[int]) -> str:
    return "".join("c" if each == C else PIECES[each] for each in ids)


def shares(sampler: Sampler, word: str, dropout: float, cuts: Iterable[str] = ()) -> dict[str, float]:
    """How often each way to cut a word is drawn, those that may never be included."""
    drawn = Counter(" ".join(spelt([each]) for each in ids) for ids in sampler.sample([word] * DRAWS, dropout, 3))
    return {cut: drawn[cut] / DRAWS for cut in {*drawn, *cuts}}


def close(expected: dict[str, float]) -> object:
    """Within five standard deviations of a share in so many draws, at most."""
    return pytest.approx(expected, abs=2.5 / math.sqrt(DRAWS))


@every
@pytest.mark.parametrize("dropout", [0.0, 0.3, 1.0])
def test_pieces_spell_the_text(kind: str, dropout: float) -> None:
    texts = ["", "a", "abacab", "ccc", "ab" * MAX_CACHED + "a"]
    for seed in range(23):
        assert [spelt(ids) for ids in SAMPLERS[kind].sample(texts, dropout, seed)] == texts


@every
def test_spaces_begin_words(kind: str) -> None:
    """Each "▁" begins a word, and a word is cut by itself."""
    spaces = vocabulary(**{"▁a": -1.0, "▁": -2.0, "a": -3.0})
    sampler: Sampler = {"bpe": BpeDropout, "unigram": SubwordRegularization}[kind](spaces)
    drawn = Counter(" ".join(spelt([each]) for each in ids) for ids in sampler.sample(["a▁▁a▁"] * 101, 0.5, 3))
    assert set(drawn) == {"a ▁ ▁a ▁", "a ▁ ▁ a ▁"}


@every
def test_pieces_are_those_of_the_seed_everywhere(kind: str) -> None:
    """Drawn once and written down: every other process and machine must come to the same."""
    drawn = SAMPLERS[kind].sample(["abaab"] * 7, 0.2, 7)
    cuts = [" ".join(spelt([each]) for each in ids) for ids in drawn]
    assert cuts == WRITTEN_DOWN[kind]


@pytest.mark.parametrize("dropout", [0.07, 0.5, 0.83])
def test_merges_are_left_out_as_worked_out_by_hand(dropout: float) -> None:
    """Of "aba", "ab" is considered first; left out, "ba"; what either makes may still be merged with the rest."""
    kept = 1.0 - dropout
    expected = {
        "aba": kept * kept + dropout * kept * kept,
        "ab a": kept * dropout,
        "a ba": dropout * kept * dropout,
        "a b a": dropout * dropout,
    }
    assert shares(SAMPLERS["bpe"], "aba", dropout) == close(expected)


def test_a_long_word_loses_merges_as_often() -> None:
    """In "abcabc…" each "ab" is one merge, and "c" has no piece."""
    long = "abc" * MAX_CACHED
    drawn = SAMPLERS["bpe"].sample([long] * 211, 0.3, 3)
    found = Counter(PIECES[each] for ids in drawn for each in ids if each != C)
    merges = 211 * MAX_CACHED
    assert found["a"] == found["b"] == merges - found["ab"]
    assert found["a"] / merges == pytest.approx(0.3, abs=2.5 / math.sqrt(merges))


@pytest.mark.parametrize("dropout", [0.03, 0.5, 0.97])
def test_a_merge_left_out_says_nothing_of_the_next(dropout: float) -> None:
    drawn = [len(ids) == 2 for ids in SAMPLERS["bpe"].sample(["ab"] * DRAWS, dropout, 11)]
    both = sum(one and other for one, other in itertools.pairwise(drawn)) / (DRAWS - 1)
    assert {"one": sum(drawn) / DRAWS, "both": both} == close({"one": dropout, "both": dropout**2})


@pytest.mark.parametrize(
    ("left_out", "pieces", "considered"),
    [((), "aba ab", 3), ((0,), "aba ab", 4), ((1,), "aba a b", 3), ((0, 3), "a ba ab", 4), ((0, 1, 2), "a b a a b", 3)],
)
def test_merges_are_considered_best_first_then_leftmost(left_out: tuple[int, ...], pieces: str, considered: int) -> None:
    """Of "abaab": the "ab" on the left, that on the right, "ba" if both its characters are alone, and "aba"."""
    cut = BpeDropout(MERGES).segment("abaab", (*left_out, math.inf))
    assert " ".join(spelt([each]) for each in cut.ids) == pieces
    assert cut.considered == considered


def every_way(word: str) -> list[list[str]]:
    """Every way to cut a word into the pieces of LIKELIHOODS, and "c"."""
    if not word:
        return [[]]
    return [
        [word[:end], *rest]
        for end in range(1, len(word) + 1)
        if word[:end] in LIKELIHOODS.scores or word[:end] == "c"
        for rest in every_way(word[end:])
    ]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("word", ["aba", "abcab"])
def test_every_way_to_cut_a_word_is_drawn_as_likely_as_it_is(word: str, alpha: float) -> None:
    """A character without a piece is 10 nats less likely than the unlikeliest piece."""
    scores = {**LIKELIHOODS.scores, "c": -4.0 - 10.0}
    weights = {" ".join(cut): math.exp(alpha * sum(scores[piece] for piece in cut)) for cut in every_way(word)}
    assert len(weights) == {"aba": 4, "abcab": 6}[word]
    expected = {cut: weight / sum(weights.values()) for cut, weight in weights.items()}
    assert shares(SAMPLERS["unigram"], word, alpha, expected) == close(expected)


def test_a_long_word_is_drawn_without_overflow() -> None:
    long = "aba" * 701
    for alpha in (0.0, 1.0):
        assert spelt(SAMPLERS["unigram"].sample([long], alpha, 1)[0]) == long


def test_all_merges_are_left_out_or_none() -> None:
    assert shares(SAMPLERS["bpe"], "abac", 1.0) == {"a b a c": 1.0}
    assert shares(SAMPLERS["bpe"], "abac", 0.0) == {"aba c": 1.0}
