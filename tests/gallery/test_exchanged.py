from __future__ import annotations

import torch
from gallery.elsewhere import Elsewhere
from gallery.encoder import Reading
from gallery.exchanged import _describe
from gallery.sentences import Pair


def pairs(first: float, second: float, words: str) -> list[Pair]:
    """One head in a sentence whose *sat* gives *cat* and *mat* these weights."""
    pieces = ("[CLS]", *words.split(), "[SEP]")
    weights = torch.zeros(1, 1, 5, 5)
    weights[0, 0, 2, pieces.index("cat")], weights[0, 0, 2, pieces.index("mat")] = first, second
    others = Elsewhere(torch.full((1, 1), 0.25), torch.full((1, 1), 0.5), 3)
    return [Pair(Reading(words, pieces, weights), "sat", word, others) for word in ("cat", "mat")]


def test_a_head_that_stays_with_the_word_is_told_from_one_that_stays_with_the_place() -> None:
    first = pairs(0.75, 0.0, "cat sat mat")
    assert (
        "0.75, and 0.00 to *mat*; swapped, 0.50 to *cat* and 0.00 to *mat*, so it follows the word more closely"
        in _describe([first, pairs(0.5, 0.0, "mat sat cat")], 0, 0)
    )
    assert "follows the position before the verb" in _describe([first, pairs(0.0, 0.75, "mat sat cat")], 0, 0)
