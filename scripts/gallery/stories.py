"""The attention while answering a story's question, with the supporting sentences written first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.patches import Rectangle
from story_corpus import Story

from attent.attention.maps.attention_map import LabelledMap
from attent.runs.config import read_config
from attent.tasks.translation.translator import Translator, load
from attent.views.build_scene import build_scene
from gallery.drawing import KEY, bar, matrix, sheet
from gallery.examples import example
from gallery.plates import Plate, Words

KINDS = {"one": "one supporting sentence", "two": "two"}
# Maximum words and punctuation marks of a drawn story, including its question.
SHORT = 46
MEASURED = 100


def plate(run: Path) -> Plate:
    """Draw a test story of each kind with framed supporting sentences, and measure the attention to those."""
    translator, judge = load(run), example("stories")
    stories = judge["read"](Path(read_config(run).corpus["text"]["train"]).parent, "test")
    texts = translator.translate([story.text for story in stories])
    right = judge["accuracy"](
        stories, [judge["answer_of"](text) == story.answer for story, text in zip(stories, texts, strict=True)]
    )
    examples = [first(stories, kind, translator) for kind in KINDS]
    maps = [translator.map(story.text) for story in examples]
    drawing = sheet(9.0, 6.6)
    panels = drawing.subplots(len(KINDS), 1, height_ratios=[5, 9])
    for axes, story, layers in zip(panels, examples, maps, strict=True):
        _draw(axes, story, next(iter(layers.values())), judge["sentence_numbers"])
    bar(drawing, list(panels))
    readings: list[str] = []
    for kind, sentences in KINDS.items():
        shares = [judge["support_share"](translator, story) for story in stories if story.kind == kind][:MEASURED]
        answer, every, chance = (mean(values) for values in zip(*shares, strict=True))
        readings.append(
            f"With {sentences}, {right[kind]:.1f}% of the test stories are answered correctly. When the answer is "
            f"written for the first time, {answer:.2f} of the attention is on the supporting sentences, which contain "
            f"{chance:.2f} of the words; over all output words, it is {every:.2f}."
        )
    return Plate(
        "stories",
        Words(
            "A story, its question, and where the model finds the answer",
            (
                "Two matrices, with rows of output words and columns of words of a story and its question; dark is a "
                "large weight; frames are the supporting sentences."
            ),
            "An RNN with Bahdanau attention trained on stories with their supporting sentences "
            f"(`configs/stories.toml`); for each kind, the first short test story, and the first {MEASURED} of the "
            "kind for the shares of attention. Row t contains the weights of the step that writes word t.",
            f"{' '.join(readings)} *{examples[1].question}* needs two lookups: who had it last, and where that "
            "person was then. The last word involves no lookup, since it repeats the answer.",
            "That the model read only what has the weight: the encoder states have read the whole story, so a name "
            "can be found at other sentences about the same person too. Nor that such a network finds two facts in "
            "one step: [stories](stories.md) shows the results of a model that writes only the answer.",
        ),
        drawing,
        build_scene(maps[1], title=examples[1].question),
    )


def first(stories: Sequence[Story], kind: str, translator: Translator) -> Story:
    """Return the first short story of a kind, or the shortest."""
    lengths = {
        index: len(translator.source_tokenizer.encode(story.text))
        for index, story in enumerate(stories)
        if story.kind == kind
    }
    return stories[
        next((index for index, length in lengths.items() if length <= SHORT), min(lengths, key=lengths.__getitem__))
    ]


def _draw(axes: Any, story: Story, heat_map: LabelledMap, sentence_numbers: Any) -> None:
    weights, numbers = heat_map.weights[0].mean(0), sentence_numbers(heat_map.columns)
    matrix(axes, weights[:-1], heat_map.rows[:-1], heat_map.columns, size=7)
    axes.set_xlabel(f"{story.question} {story.answer}", fontsize=9, loc="left")
    for support in story.support:
        columns = [index for index, number in enumerate(numbers) if number == support]
        height = len(heat_map.rows) - 1
        axes.add_patch(
            Rectangle((columns[0] - 0.5, -0.5), len(columns), height, fill=False, edgecolor=KEY, linewidth=1.3)
        )
