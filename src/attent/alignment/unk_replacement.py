"""Text of each token of a translation, with unknown tokens replaced by the source pieces that the model attended to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from torch import Tensor

from attent.text.tokenizer import SPECIALS, UNK, Tokenizer


def token_texts(tokens: Sequence[int], target: Tokenizer) -> list[str]:
    """Return the text that each token adds, with the space before it if it brings one; empty for UNK."""
    context = _context(target)
    texts = {token: _text_after(context, [token], target) for token in set(tokens)}
    return [texts[token] for token in tokens]


def copy_unknown(
    tokens: Sequence[int], target: Tokenizer, weights: Tensor, source: Sequence[str]
) -> tuple[str, list[str]]:
    """Replace each unknown token of a translation by the source piece of the highest weight.

    Source: Luong et al. (2015), §4.2, arXiv 1508.04025, who copy source words.

    Args:
        tokens: the translation.
        target: its tokenizer.
        weights: the attention of each token's step to the source, (Tq, Tk).
        source: Tk pieces.

    Returns:
        The text, and the text of each token in it.
    """
    texts = token_texts(tokens, target)
    if UNK not in tokens or not source:
        return target.decode(tokens), texts
    pieces = [source[int(row.argmax())] for row in weights]
    # SentencePiece writes a space as "▁"
    copied = (piece.replace("▁", " ") if len(piece) > 1 else piece for piece in pieces)
    texts = [copy if token == UNK else text for token, text, copy in zip(tokens, texts, copied, strict=True)]
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
