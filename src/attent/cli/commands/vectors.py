"""attent vectors: write a run's embeddings as word vectors."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from attent.cli.options import RunFolder, TrustCode
from attent.cli.output import say
from attent.errors import ArgumentError, check_known
from attent.setting import Help


def vectors(
    run: RunFolder,
    out: Annotated[Path, Help("Output file: .txt for GloVe, .vec for fastText, .bin for word2vec; also with .gz.")],
    side: Annotated[str | None, Help("Embedding: source, target or text; the first unless given.")] = None,
    trust_code: TrustCode = False,
) -> None:
    """Write the embeddings of a run's vocabulary as word vectors for other programs.

    Subword pieces are written as they are, with "▁" for a space.
    """
    from attent.runs.durable import new_file
    from attent.runs.folder import read
    from attent.text.vector_formats import GZIPPED, format_of, is_writable
    from attent.text.word_vectors import vocabulary_vectors, write

    file_format, loaded_run = format_of(out), read(run, trust_code=trust_code)
    if not loaded_run.tokenizers:
        raise ArgumentError(f"{run} has no vocabulary: it reads vectors")
    side = side or next(iter(loaded_run.tokenizers))
    check_known("side", side, loaded_run.tokenizers)
    embedding = loaded_run.model.embeddings[side]
    word_vectors, left_out = vocabulary_vectors(
        loaded_run.tokenizers[side], embedding.scale * embedding.weight.detach(), partial(is_writable, form=file_format)
    )
    with new_file(out) as draft:
        write(draft, word_vectors, file_format, gzipped=out.name.endswith(GZIPPED))
    print(f"{len(word_vectors):,} words of {word_vectors.width} numbers: {out}")
    if left_out:
        say(f"{left_out:,} ids are left out: spaces, bytes, words that the format cannot represent, and duplicates")
