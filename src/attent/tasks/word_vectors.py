"""Initialization of embeddings with word vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch

from attent.errors import ArgumentError
from attent.models.model import Model
from attent.tasks.settings import RunSettings
from attent.tasks.task import task_of
from attent.text import word_vectors
from attent.text.batches import Sequences
from attent.text.settings import VectorsSettings
from attent.text.tokenizer import Tokenizer
from attent.text.word_vectors import VocabularyMatch, candidate_words, match_vocabulary, width_of

# Minimum share of the vocabulary with vectors; below it, a warning is shown.
MIN_SHARE = 0.5
# The names of the embeddings' width in model settings.
WIDTHS = "embedding_width", "width"

# By side: counts of the vocabulary with vectors, and the share of running words.
Coverage = dict[str, dict[str, int | float]]


class EmbeddingInit(NamedTuple):
    """Embeddings initialized with word vectors.

    Args:
        matches: the ids that have a vector, by side.
        report: lines for the user.
    """

    matches: Mapping[str, VocabularyMatch]
    report: list[str]

    def coverage(self, text: Mapping[str, Sequences] | None = None) -> Coverage:
        """Return the coverage for a run's config.

        It has the number of ids with a vector, and the share of a text's running words with one, 0 to 1.
        """
        return {
            side: {"tokens": match.size, "found": len(match.ids), "lower_cased": match.lowercased}
            | ({"running": round(match.text_coverage(text[side]), 6)} if text and side in text else {})
            for side, match in self.matches.items()
        }


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
    if shared == "all" and len(files) > 1:
        raise ArgumentError(
            'source and target share one embedding (share_embeddings = "all"): give word vectors for one of them'
        )
    if settings.vectors.frozen and (shared == "all" or (shared == "target" and "target" in files)):
        side = next(reversed(files))
        raise ArgumentError(
            f"the {side}'s embedding cannot be frozen because it is also the output matrix (share_embeddings = "
            f"{shared!r}): "
            'set model.share_embeddings = "none"'
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
def init_embeddings(
    settings: VectorsSettings, model: Model, tokenizers: Mapping[str, Tokenizer], table: str = "text"
) -> EmbeddingInit:
    """Replace rows of embeddings with word vectors, and freeze the embeddings if the settings require it.

    The vectors of each side are scaled by a common factor to a mean square of 1 of the features, as for random rows.
    Position encodings and words without a vector then have a similar size, and the angles and relative lengths of
    vectors are preserved.

    Args:
        settings: settings that name the files, by side.
        model: new model with random weights; words without a vector keep their rows.
        tokenizers: tokenizers by side.
        table: name of the corpus table in a recipe; its settings determine the tokenizers.

    Raises:
        ArgumentError: no word has a vector, or all vectors are zero.
        DataError: a file cannot be read.
    """
    matches: dict[str, VocabularyMatch] = {}
    report: list[str] = []
    for side, file in settings.files.items():
        vectors = word_vectors.read(file, candidate_words(tokenizers[side]))
        match = matches[side] = match_vocabulary(tokenizers[side], vectors)
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
        report += [*vectors.report.summary(), *_report(side, file, match, table)]
    freeze(settings, model)
    return EmbeddingInit(matches, report)


def freeze(settings: VectorsSettings | None, model: Model) -> None:
    """Exclude the embeddings with word vectors from training, if the settings say so."""
    if settings is not None and settings.frozen:
        for side in settings.files:
            model.embeddings[side].weight.requires_grad_(False)


def running_coverage(coverage: Coverage) -> list[str]:
    """Return lines about the share of running words that have a vector."""
    return [
        f"{side}: {100 * counts['running']:.1f} % of the running words have a vector"
        for side, counts in coverage.items()
        if "running" in counts
    ]


def _report(side: str, file: str, match: VocabularyMatch, table: str) -> list[str]:
    lowered = f" ({match.lowercased:,} of them lower-cased)" * bool(match.lowercased)
    lines = [
        (
            f"{side}: {len(match.ids):,} of the vocabulary's {match.size:,} start from a vector{lowered}, the others "
            "from random numbers"
        )
    ]
    if len(match.ids) < MIN_SHARE * match.size:
        setting = f"{side}_tokenizer" if table == "text" else "tokenizer"
        # dates are always tokenized into characters
        advice = "" if table == "dates" else f'; {table}.{setting} = "word" has whole ones'
        reason = (
            f"{match.parts:,} of its ids are parts of words{advice}"
            if match.parts
            else "is it for that language, and spelled alike?"
        )
        lines.append(f"warning: {file} has few words of the {side}'s vocabulary: {reason}")
    return lines
