from collections.abc import Iterable

from attent.alignment.unk_replacement import copy_unknown, token_texts
from attent.text.tokenizer import SPECIALS, UNK, CharTokenizer

CHARACTERS = CharTokenizer(" ab")
LINKS = [(1, 0), (0, 1), (1, 2)]


class Words(CharTokenizer):
    """Words with the space before them, which the first of a text goes without; the last one is a sign."""

    def decode(self, ids: Iterable[int]) -> str:
        return "".join((" cat", " sat", ".")[token - SPECIALS] for token in ids if token >= SPECIALS).removeprefix(" ")


WORDS = Words("abc")


def test_pieces_bring_their_spaces() -> None:
    assert token_texts([5, UNK, 4, 6, 5], CHARACTERS) == ["a", "", " ", "b", "a"]
    assert token_texts([5, UNK, 4, 6], WORDS) == [" sat", "", " cat", "."]


def test_what_was_looked_at_takes_its_place() -> None:
    assert copy_unknown([5, UNK, 6], CHARACTERS, LINKS, ["x", "y"]) == ("axb", ["a", "x", "b"])
    assert copy_unknown([UNK, 4, UNK], CHARACTERS, LINKS, [" ", "y"]) == ("y y", ["y", " ", "y"])


def test_words_stay_apart_and_signs_do_not() -> None:
    assert copy_unknown([4, UNK, 6], WORDS, LINKS, [" Ω", " Ψ"]) == ("cat Ω.", [" cat", " Ω", "."])
    assert copy_unknown([UNK, UNK, 5], WORDS, LINKS, ["▁Ω", "▁Ψ"]) == ("Ψ Ω sat", [" Ψ", " Ω", " sat"])


def test_nothing_unknown_nothing_changed() -> None:
    assert copy_unknown([5, 4, 6], CHARACTERS, LINKS, ["x", "y"])[0] == "a b"
    assert copy_unknown([UNK, 5], CHARACTERS, [], [])[0] == "a"
