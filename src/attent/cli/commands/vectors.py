"""attent vectors: write a run's embeddings, or vectors trained on a text, as word vectors."""

from pathlib import Path
from typing import Annotated, Any

import typer

from attent.cli.options import Given, Offer, TrustCode
from attent.cli.output import say
from attent.errors import check_known, refuse
from attent.setting import Help

SkipGram = Annotated[Given[Any], Offer("attent.text.settings", "SkipGramSettings")]


def vectors(
    run: Annotated[Path | None, typer.Argument(help="The run folder.", show_default=False)] = None,
    *,
    out: Annotated[Path, Help("Output file in word2vec's text format: .vec or .txt.")],
    from_text: Annotated[Path | None, Help("Train vectors on the lines of this text instead.")] = None,
    training: SkipGram,
    side: Annotated[str | None, Help("Embedding: source, target or text; the first unless given.")] = None,
    trust_code: TrustCode = False,
) -> None:
    """Write word vectors: a run's embeddings, or trained on a text.

    Other programs read them. Subword pieces are written as they are, with "▁" for a space.
    """
    refuse(
        ((run is None) == (from_text is None), "give a run folder, or a text with --from-text"),
        (bool(run and training.values), "these options are for --from-text"),
        (out.suffix not in (".vec", ".txt"), f"--out must end in .vec or .txt, got {str(out)!r}"),
    )
    from attent.runs.durable import new_file
    from attent.runs.folder import read
    from attent.text.word_vectors import vocabulary_vectors, write

    left_out = 0
    if run is None:
        from attent.text.skip_gram import train_vectors

        word_vectors = train_vectors(str(from_text), training.settings(), say)
    else:
        loaded_run = read(run, trust_code=trust_code)
        refuse((not loaded_run.tokenizers, f"{run} has no vocabulary: it reads vectors"))
        side = side or next(iter(loaded_run.tokenizers))
        check_known("side", side, loaded_run.tokenizers)
        embedding = loaded_run.model.embeddings[side]
        features = embedding.scale * embedding.weight.detach()
        word_vectors, left_out = vocabulary_vectors(loaded_run.tokenizers[side], features)
    with new_file(out) as draft:
        write(draft, word_vectors)
    print(f"{len(word_vectors):,} words of {word_vectors.width} numbers: {out}")
    if left_out:
        say(f"{left_out:,} ids are left out: spaces, bytes, words with spaces, and duplicates")
