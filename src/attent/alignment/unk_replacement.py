"""Text of each token of a translation, with unknown tokens replaced by the source pieces that the model attended to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from attent.text.text import Link
from attent.text.tokenizer import SPECIALS, UNK, Tokenizer


def token_texts(tokens: Sequence[int], target: Tokenizer) -> list[str]:
    """Return the text that each token adds, with the space before it if it brings one; empty for UNK."""
    context = _context(target)
    texts = {token: _text_after(context, [token], target) for token in set(tokens)}
    return [texts[token] for token in tokens]


def copy_unknown(
    tokens: Sequence[int], target: Tokenizer, links: Sequence[Link], source: Sequence[str]
) -> tuple[str, list[str]]:
    """Replace each unknown token of a translation by the source piece that it is linked to.

    Source: Luong et al. (2015), §4.2, arXiv 1508.04025, who copy source words.

    Args:
        tokens: the translation.
        target: its tokenizer.
        links: (source token, target token) each.
        source: the pieces of its tokens.

    Returns:
        The text, and the text of each token in it.
    """
    texts = token_texts(tokens, target)
    for piece, position in ((source[first], second) for first, second in links if tokens[second] == UNK):
        # SentencePiece writes a space as "▁"
        texts[position] = piece.replace("▁", " ") if len(piece) > 1 else piece
    result = ""
    for is_unknown, run in groupby(zip(tokens, texts, strict=True), key=lambda item: item[0] == UNK):
        ids, copies = zip(*run, strict=True)
        if is_unknown:
            # at the beginning a word needs no space before it
            result += "".join(copies) if result or len(copies[0]) == 1 else "".join(copies).removeprefix(" ")
        else:
            result += _text_after(_context(target), ids, target) if result else target.decode(ids)
    return result, texts


def _context(target: Tokenizer) -> list[int]:
    """Return a token after which other tokens show the space that they bring."""
    return next(([token] for token in range(SPECIALS, target.size) if target.decode([token]).strip()), [])


def _text_after(context: list[int], tokens: Sequence[int], target: Tokenizer) -> str:
    """Return the text that tokens add after a context."""
    return target.decode([*context, *tokens]).removeprefix(target.decode(context))
