"""attent vectors: a run's embeddings as word vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attent.cli.options import RunFolder, TrustCode
from attent.cli.output import say
from attent.errors import ArgumentError


def vectors(
    run: RunFolder,
    out: Annotated[
        Path,
        typer.Option(
            help="The file: .txt as GloVe's, .vec as fastText's, .bin as word2vec's, perhaps with .gz behind."
        ),
    ],
    side: Annotated[str | None, typer.Option(help="Whose embedding: source, unless target is said, or text.")] = None,
    trust_code: TrustCode = False,
) -> None:
    """Write what a run has learnt of each word of its vocabulary, as other programs read word vectors.

    A vocabulary of pieces is written by piece, with "▁" for a space.
    """
    from attent.formats.embeddings import embedding_vectors
    from attent.runs.durable import new_file
    from attent.runs.folder import read
    from attent.text.word_vectors.formats import GZIPPED, format_of, write

    file_format, loaded_run = format_of(out), read(run, trust_code=trust_code)
    if not loaded_run.tokenizers:
        raise ArgumentError(f"{run} has no words: it reads vectors")
    word_vectors, left_out = embedding_vectors(loaded_run, side or next(iter(loaded_run.tokenizers)), file_format)
    with new_file(out) as draft:
        write(draft, word_vectors, file_format, gzipped=out.name.endswith(GZIPPED))
    print(f"{len(word_vectors):,} words of {word_vectors.width} numbers: {out}")
    if left_out:
        say(
            f"{left_out:,} ids have no vector there: spaces, bytes, what a file cannot hold, and words that another "
            "id stands for"
        )
