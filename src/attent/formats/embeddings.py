"""A run's embeddings as word vectors."""

from __future__ import annotations

from attent.errors import check_known
from attent.runs.folder import Run
from attent.text.tokenizer import SPECIALS
from attent.text.tokenizers import SPACE
from attent.text.vector_formats import is_writable
from attent.text.word_vectors import WordVectors


def embedding_vectors(run: Run, side: str, form: str) -> tuple[WordVectors, int]:
    """Return the embedding of each word of a vocabulary, or of each piece of a vocabulary of subwords.

    Of two ids of the same word, such as a sign with and without a space before it, the more frequent one counts.

    Args:
        run: from `attent.runs.folder.read`.
        side: of the vocabulary: "source" or "target" of a translator, "text" of other runs.
        form: a format of `attent.text.word_vectors.write`, which cannot hold every word.

    Returns:
        The vectors, and the number of ids without one, special ids not counted.

    Raises:
        UnknownNameError: there is no such side, or no such format.
    """
    check_known("side", side, run.tokenizers)
    tokenizer, embedding = run.tokenizers[side], run.model.embeddings[side]
    ids = range(SPECIALS, tokenizer.size)
    by_piece = any(tokenizer.piece(token).startswith(SPACE) for token in ids)
    rows: dict[str, int] = {}
    for token in ids:
        word = tokenizer.piece(token) if by_piece else tokenizer.word(token)
        if word and is_writable(word, form):
            rows.setdefault(word, token)
    features = embedding.scale * embedding.weight.detach()[list(rows.values())]
    return WordVectors(list(rows), features), len(ids) - len(rows)
