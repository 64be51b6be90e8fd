"""Embeddings that start from word vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch

from attent.data import word_vectors
from attent.data.batches import Sequences
from attent.data.tokenizer import Tokenizer
from attent.data.word_vectors.matching import Matched, matched, wanted
from attent.data.word_vectors.reading import width_of
from attent.data.word_vectors.settings import VectorsSettings
from attent.errors import ArgumentError
from attent.models.model import Model
from attent.runs.config import DOES, TOKENIZERS
from attent.tasks.settings import RunSettings

# A smaller share of a vocabulary with vectors is worth a warning.
FEW = 0.5
# What the settings of a model may call the width of its embeddings.
WIDTHS = "embedding_width", "width"

# By side: how much of a vocabulary, and of the running words, has a vector.
Coverage = dict[str, dict[str, int | float]]


class EmbeddingInit(NamedTuple):
    """Embeddings that have started from word vectors.

    Args:
        sides: which ids have a vector, by side.
        said: for a person, line by line.
    """

    matches: Mapping[str, Matched]
    report: list[str]

    def coverage(self, text: Mapping[str, Sequences] | None = None) -> Coverage:
        """What a run's config holds: how many ids of each vocabulary have a vector, and of a text how many running words, 0 to 1."""
        return {
            side: {"tokens": found.size, "found": len(found.ids), "lower_cased": found.lowered}
            | ({"running": round(found.running(text[side]), 6)} if text and side in text else {})
            for side, found in self.matches.items()
        }


def check(settings: RunSettings) -> None:
    """Check that word vectors suit a model, before anything else is read.

    Raises:
        ArgumentError: the run reads no text, they are of another width, an embedding that several share would be frozen or start twice.
        DataError: a file cannot be read, as far as its beginning shows.
    """
    if settings.vectors is None:
        return
    files, model = settings.vectors.files, settings.model
    if settings.images is not None:
        raise ArgumentError(f"a run that classifies pictures or vectors embeds no words, and {next(iter(files))} has word vectors")
    known = TOKENIZERS.get(settings.task, ("text",))
    if wrong := [side for side in files if side not in known]:
        raise ArgumentError(f"a run that {DOES[settings.task][0]} embeds {' and '.join(known)}, not {wrong[0]}, which has word vectors")
    shared = getattr(model, "share_embeddings", "none")
    if shared == "all" and len(files) > 1:
        raise ArgumentError('source and target have one embedding (share_embeddings = "all"): give word vectors for one of them')
    if settings.vectors.frozen and (shared == "all" or (shared == "target" and "target" in files)):
        side = next(reversed(files))
        raise ArgumentError(
            f"the {side}'s embedding cannot be frozen while it is the output matrix too (share_embeddings = {shared!r}): "
            'set model.share_embeddings = "none"'
        )
    name = next(name for name in WIDTHS if name in type(model).model_fields)
    width = getattr(model, name)
    for side, file in files.items():
        if (found := width_of(file)) != width:
            raise ArgumentError(f"{file} has vectors of {found} numbers, and the {side}'s embedding {width}: set model.{name} = {found}")


@torch.no_grad()
def init_embeddings(settings: VectorsSettings, model: Model, tokenizers: Mapping[str, Tokenizer], table: str = "text") -> EmbeddingInit:
    """Put word vectors in the place of embeddings' random rows, and freeze these if the settings say so.

    All vectors of a side are multiplied by one number, so that features start with a mean square of 1, as those of random rows do:
    positions that are added, and words without a vector, are then of like size, and the vectors' angles and relative lengths stay.

    Args:
        settings: which files.
        model: new, with random weights; words without a vector keep theirs.
        tokenizers: by side.
        table: of the corpus in a recipe, whose settings decide the tokenizers.

    Raises:
        ArgumentError: no word has a vector, or all that were found are zero.
        DataError: a file cannot be read.
    """
    sides: dict[str, Matched] = {}
    said: list[str] = []
    for side, file in settings.files.items():
        vectors = word_vectors.read(file, wanted(tokenizers[side]))
        found = sides[side] = matched(tokenizers[side], vectors)
        rows = vectors.vectors[found.rows]
        size = rows.square().mean().sqrt()
        if not size > 0:
            raise ArgumentError(f"no word of the {side}'s vocabulary has a vector in {file}" + ", but zeros" * bool(found.rows))
        embedding = model.embeddings[side]
        embedding.weight[found.ids] = rows.to(embedding.weight) / (size * embedding.scale)
        assert vectors.report is not None
        said += [*vectors.report.summary(), *_said(side, file, found, table)]
    freeze(settings, model)
    return EmbeddingInit(sides, said)


def freeze(settings: VectorsSettings | None, model: Model) -> None:
    """Take the embeddings that start from word vectors out of training, if the settings say so."""
    if settings is not None and settings.frozen:
        for side in settings.files:
            model.embeddings[side].weight.requires_grad_(False)


def running_coverage(coverage: Coverage) -> list[str]:
    """The share of running words that have a vector, for a person."""
    return [
        f"{side}: {100 * counts['running']:.1f} % of the running words have a vector"
        for side, counts in coverage.items()
        if "running" in counts
    ]


def _said(side: str, file: str, found: Matched, table: str) -> list[str]:
    lowered = f" ({found.lowered:,} of them lower-cased)" * bool(found.lowered)
    lines = [f"{side}: {len(found.ids):,} of the vocabulary's {found.size:,} start from a vector{lowered}, the others from random numbers"]
    if len(found.ids) < FEW * found.size:
        setting = f"{side}_tokenizer" if table == "text" else "tokenizer"
        # dates are always cut into characters
        advice = "" if table == "dates" else f'; {table}.{setting} = "word" has whole ones'
        why = f"{found.parts:,} of its ids are parts of words{advice}" if found.parts else "is it of that language, and written so?"
        lines.append(f"warning: {file} has few words of the {side}'s vocabulary: {why}")
    return lines
