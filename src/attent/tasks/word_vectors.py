"""Initialization of embeddings with word vectors."""

from collections.abc import Mapping

import torch

from attent.errors import ArgumentError, refuse
from attent.models.model import Model
from attent.tasks.settings import RunSettings
from attent.tasks.task import task_of
from attent.text import word_vectors
from attent.text.settings import VectorsSettings
from attent.text.tokenizer import Tokenizer
from attent.text.vector_formats import width_of
from attent.text.word_vectors import candidate_words, match_vocabulary

# Minimum share of the vocabulary with vectors; below it, a warning is shown.
MIN_SHARE = 0.5
FEW = (
    "{file} has few words of the {side}'s vocabulary: it should have the same language and spelling, and the tokenizer "
    "whole words (word)"
)
# The names of the embeddings' width in model settings.
WIDTHS = "embedding_width", "width"

# By side, the size of the vocabulary and the number of its ids with a vector; and lines for the user.
Initialized = tuple[dict[str, dict[str, int]], list[str]]


def check(settings: RunSettings) -> None:
    """Check that word vectors fit a model, before the corpus is read.

    Raises:
        ArgumentError: the run reads no text, the widths differ, or a shared embedding would be frozen or initialized
            twice.
        DataError: the beginning of a file cannot be read.
    """
    if settings.vectors is None:
        return
    files, model = settings.vectors.files, settings.model
    if getattr(model, "input", "tokens") == "vectors":
        raise ArgumentError(
            f"a run that classifies pictures or vectors embeds no words, but {next(iter(files))} has word vectors"
        )
    task = task_of(settings.task)
    sides = task.tokenizers
    if wrong := [side for side in files if side not in sides]:
        raise ArgumentError(
            f"a run that {task.does} embeds {' and '.join(sides)}, not {wrong[0]}, which has word vectors"
        )
    shared = getattr(model, "share_embeddings", "none")
    refuse(
        (
            shared == "all" and len(files) > 1,
            'source and target share one embedding (share_embeddings = "all"): give word vectors for one of them',
        ),
        (
            settings.vectors.frozen and (shared == "all" or (shared == "target" and "target" in files)),
            f"the {[*files][-1]}'s embedding cannot be frozen because it is also the output matrix (share_embeddings = "
            f'{shared!r}): set model.share_embeddings = "none"',
        ),
    )
    name = next(name for name in WIDTHS if name in type(model).model_fields)
    width = getattr(model, name)
    for side, file in files.items():
        if (file_width := width_of(file)) != width:
            raise ArgumentError(
                f"{file} has vectors of {file_width} numbers, but the {side}'s embedding has {width}: "
                f"set model.{name} = {file_width}"
            )


@torch.no_grad()
def init_embeddings(settings: VectorsSettings, model: Model, tokenizers: Mapping[str, Tokenizer]) -> Initialized:
    """Replace rows of embeddings with word vectors, and freeze the embeddings if the settings require it.

    The vectors of each side are scaled by a common factor to a mean square of 1 of the features, as for random rows.
    Position encodings and words without a vector then have a similar size, and the angles and relative lengths of
    vectors are preserved.

    Args:
        settings: settings that name the files, by side.
        model: new model with random weights; words without a vector keep their rows.
        tokenizers: tokenizers by side.

    Returns:
        The coverage of the vocabularies for a run's config, and lines for the user.

    Raises:
        ArgumentError: no word has a vector, or all vectors are zero.
        DataError: a file cannot be read.
    """
    coverage: dict[str, dict[str, int]] = {}
    report: list[str] = []
    for side, file in settings.files.items():
        vectors = word_vectors.read(file, candidate_words(tokenizers[side]))
        match = match_vocabulary(tokenizers[side], vectors)
        rows = vectors.vectors[match.rows]
        size = rows.square().mean().sqrt()
        if not size > 0:
            raise ArgumentError(
                f"no word of the {side}'s vocabulary has a vector in {file}"
                + ", except zero vectors" * bool(match.rows)
            )
        embedding = model.embeddings[side]
        embedding.weight[match.ids] = rows.to(embedding.weight) / (size * embedding.scale)
        assert vectors.report is not None
        coverage[side] = {"tokens": match.size, "found": len(match.ids)}
        report += [
            *vectors.report.summary(),
            f"{side}: {len(match.ids):,} of the vocabulary's {match.size:,} start from a vector, the others from "
            "random numbers",
        ]
        if len(match.ids) < MIN_SHARE * match.size:
            report.append(f"warning: {FEW.format(file=file, side=side)}")
    freeze(settings, model)
    return coverage, report


def freeze(settings: VectorsSettings | None, model: Model) -> None:
    """Exclude the embeddings with word vectors from training, if the settings say so."""
    if settings is not None and settings.frozen:
        for side in settings.files:
            model.embeddings[side].weight.requires_grad_(False)
