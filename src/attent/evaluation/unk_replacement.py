"""What each token of a translation is written as, and unknown ones replaced by what the model looked at meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from torch import Tensor

from attent.data.tokenizer import SPECIALS, UNK, Tokenizer


def token_texts(tokens: Sequence[int], target: Tokenizer) -> list[str]:
    """What each token adds to a text, the space before it included where it brings one; nothing for UNK."""
    before = _anchor(target)
    known = {token: _behind(before, [token], target) for token in set(tokens)}
    return [known[token] for token in tokens]


def copy_unknown(tokens: Sequence[int], target: Tokenizer, weights: Tensor, source: Sequence[str]) -> tuple[str, list[str]]:
    """A translation with the source piece of the highest weight in place of each unknown one.

    Source: Luong et al. (2015), §4.2, arXiv 1508.04025, who copy source words so.

    Args:
        tokens: the translation.
        target: its tokenizer.
        weights: how each token's step looks at the source, (Tq, Tk).
        source: the source's pieces, Tk.

    Returns:
        The text, and what each token is written as in it.
    """
    pieces = token_texts(tokens, target)
    if UNK not in tokens or not source:
        return target.decode(tokens), pieces
    places = [int(row.argmax()) for row in weights]
    written = [_as_text(source[place]) if token == UNK else piece for token, piece, place in zip(tokens, pieces, places, strict=True)]
    text = ""
    for unknown, run in groupby(zip(tokens, written, strict=True), key=lambda one: one[0] == UNK):
        some, copies = zip(*run, strict=True)
        if unknown:
            # a word that brings the space before it needs none at the beginning
            text += "".join(copies) if text or len(copies[0]) == 1 else "".join(copies).removeprefix(" ")
        else:
            text += _behind(_anchor(target), some, target) if text else target.decode(some)
    return text, written


def _anchor(target: Tokenizer) -> list[int]:
    """A token behind which others are written with the space that they bring."""
    return next(([token] for token in range(SPECIALS, target.size) if target.decode([token]).strip()), [])


def _behind(before: list[int], tokens: Sequence[int], target: Tokenizer) -> str:
    """What tokens add to a text that is there already."""
    return target.decode([*before, *tokens]).removeprefix(target.decode(before))


def _as_text(piece: str) -> str:
    """A source piece, with the spaces that SentencePiece writes as "▁"."""
    return piece.replace("▁", " ") if len(piece) > 1 else piece
