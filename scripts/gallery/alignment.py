"""Bahdanau's attention over dates, compared with the gold links."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from attent.alignment.aligner import align
from attent.alignment.error_rate import Agreement, agreement
from attent.runs.config import read_config
from attent.tasks.dates.corpus import HELD_OUT_DATES, DatesSettings, dates, gold_links, tokenize_dates
from attent.tasks.translation.translator import Translator, load
from attent.text.text import Pair
from attent.views.build_scene import build_scene
from gallery.drawing import bar, matrix, sheet
from gallery.plates import Plate, Words

# The locales of the examples.
SHOWN = ("de", "fr", "ru")
# The range of lengths of an example's text, in characters, both ends excluded.
LONG, LONGEST = 18, 34
JUDGED = 300


def plate(run: Path) -> Plate:
    """Draw the weights of held-out dates with the gold links framed.

    Measure how often the largest weight of a row is on a link.
    """
    translator = load(run)
    pairs = dates(DatesSettings.model_validate(read_config(run).corpus["dates"])).held_out[HELD_OUT_DATES]
    judged, tokenizers = pairs[:JUDGED], (translator.source_tokenizer, translator.target_tokenizer)
    links = align(translator.model, [tokenize_dates(pair.source, pair.target, tokenizers) for pair in judged])
    total = sum(map(agreement, links, map(gold_links, judged)), Agreement())
    examples = [pair for locale in SHOWN if (pair := first(pairs, locale)) is not None]
    drawing = sheet(9.0, 3.1 * len(examples))
    panels = drawing.subplots(len(examples), 1, squeeze=False).flatten()
    readings: list[str] = []
    for axes, pair in zip(panels, examples, strict=True):
        _draw(axes, translator, pair)
        readings.append(f"`{pair.source}` is translated to {translator.translate([pair.source])[0]}")
    bar(drawing, list(panels))
    return Plate(
        "alignment",
        Words(
            "The alignment of Bahdanau attention",
            (
                "A matrix for each date, with rows of output characters and columns of input characters; dark is a "
                "large weight; frames are the gold links."
            ),
            "An RNN with Bahdanau attention trained on dates (`configs/dates-rnn.toml`, for its number of updates); "
            f"{len(examples)} held-out dates, with teacher forcing. Row t contains the weights of the step that writes "
            "character t.",
            f"{'; '.join(readings)}. On {JUDGED} held-out dates, the largest weight of a row is on a gold link for "
            f"{total.precision:.1%} of the {total.predicted:,} rows of digits; the alignment error rate is "
            f"{total.error_rate:.3f}.",
            "That only the darkest position was read: the encoder states have read the whole text in both "
            "directions, so a row may attend next to what it needs and still know it. Words of other corpora have "
            "no such links.",
        ),
        drawing,
        build_scene(translator.map(examples[0].source, examples[0].target), title=examples[0].source),
    )


def first(pairs: Sequence[Pair], locale: str) -> Pair | None:
    """Return the first pair of a locale whose text is neither short nor long."""
    return next(
        (pair for pair in pairs if pair.source.startswith(f"{locale} | ") and LONG < len(pair.source) < LONGEST), None
    )


def _draw(axes: Any, translator: Translator, pair: Pair) -> None:
    (heat_map,) = translator.map(pair.source, pair.target).values()
    weights = heat_map.weights[0].mean(0)
    marked = [(target, source) for source, target in pair.links]
    matrix(axes, torch.as_tensor(weights), heat_map.rows, heat_map.columns, pair.source, marked=marked)
