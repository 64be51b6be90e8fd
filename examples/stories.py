"""Evaluate runs on stories with questions: the percentage of correct answers, and attention to supporting sentences.

    python examples/stories.py STORIES RUN [RUN]...

STORIES is a folder written by `examples/make_stories.py`, and each RUN was trained on it, or on the same stories
`--with-support`. The words after the last full stop of a run's output are its answer; a second row counts answers whose
supporting sentences are also correct to the last word. There are two baselines: the place that the story mentions last,
and the most frequent training answer for the kind of question. Attention is that of the last layer, averaged over its
heads, on test stories.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from story_corpus import Story
from story_corpus.world import PLACES

import attent
from attent.tasks.translation.translator import Translator

# The number of test stories of each kind for which attention is measured.
MEASURED = 100


class Share(NamedTuple):
    """The share of the attention to one story that is on its supporting sentences.

    Args:
        answer: the share when the first word of the answer is first written, perhaps in a supporting sentence.
        all: the mean share when any word is written.
        chance: the share of the story's words that are in these sentences.
    """

    answer: float
    all: float
    chance: float


def read(folder: Path, part: str) -> list[Story]:
    """Read the stories of a part: train, valid or test."""
    lines = (folder / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()
    return [Story(**json.loads(line)) for line in lines]


def answer_of(text: str) -> str:
    """Return the answer, which follows the last full stop."""
    return text.rpartition(".")[2].strip()


def last_place(story: Story) -> str:
    """Return the place that the story mentions last."""
    words = " ".join(story.sentences).replace(".", "").split()
    return next(word for word in reversed(words) if word in PLACES)


def accuracy(stories: Sequence[Story], is_right: Iterable[bool]) -> dict[str, float]:
    """Return the percentage of correct answers by kind of question."""
    by_kind: dict[str, list[float]] = {}
    for story, right in zip(stories, is_right, strict=True):
        by_kind.setdefault(story.kind, []).append(100.0 * right)
    return {kind: mean(values) for kind, values in by_kind.items()}


def sentence_numbers(pieces: Sequence[str]) -> list[int]:
    """Return the number of the sentence, from 0, of each word or sign.

    The question follows the last full stop.
    """
    return [sum(piece.strip() == "." for piece in pieces[:index]) for index in range(len(pieces))]


def support_share(run: Translator, story: Story) -> Share | None:
    """Return the shares of attention on the supporting sentences.

    None if the run has no attention to the story, or writes nothing.
    """
    target = run.translate(story.text)
    maps = [layer for name, layer in run.map(story.text, target).items() if name.endswith("cross_attention")]
    if not (maps and target):
        return None
    weights = maps[-1].weights[0].mean(0)  # (T written and EOS, T read)
    numbers = sentence_numbers(maps[-1].columns)
    support = [index for index, number in enumerate(numbers) if number in story.support]
    on_support = weights[:-1, support].sum(-1).tolist()
    words = [word.strip() for word in run.target_tokenizer.pieces(target)]
    answer = words.index((answer_of(target).split() or words[-1:])[0])
    return Share(on_support[answer], mean(on_support), len(support) / len(numbers))


def main() -> None:
    """Print a table of correct answers for each part, and one of attention."""
    folder, runs = Path(sys.argv[1]), {Path(name).name: attent.load(name) for name in sys.argv[2:]}
    frequent: dict[str, Counter[str]] = {}
    for story in read(folder, "train"):
        frequent.setdefault(story.kind, Counter())[story.answer] += 1
    for part in ("valid", "test"):
        stories, rows = read(folder, part), dict[str, dict[str, float]]()
        for name, run in runs.items():
            texts = run.translate([story.text for story in stories])
            rows[name] = accuracy(
                stories, (answer_of(text) == story.answer for story, text in zip(stories, texts, strict=True))
            )
            if any("." in text for text in texts):
                are_right = (text == story.supported_answer for story, text in zip(stories, texts, strict=True))
                rows[f"{name}, every word"] = accuracy(stories, are_right)
        rows["last place"] = accuracy(stories, (last_place(story) == story.answer for story in stories))
        rows["most frequent"] = accuracy(
            stories, (frequent[story.kind].most_common(1)[0][0] == story.answer for story in stories)
        )
        print(f"{'right, ' + part + ', %':28}", *(f"{kind:>8}" for kind in frequent))
        for name, row in rows.items():
            print(f"{name:28}", *(f"{row[kind]:8.1f}" for kind in frequent))
        print()
    print(f"{'attention on the support':28} {'kind':>8}   answer  all words  by chance")
    for name, run in runs.items():
        for kind in frequent:
            measured = [support_share(run, story) for story in stories if story.kind == kind][:MEASURED]
            if measured := [share for share in measured if share is not None]:
                answer, every, chance = (mean(values) for values in zip(*measured, strict=True))
                print(f"{name:28} {kind:>8} {answer:8.2f} {every:10.2f} {chance:10.2f}")


if __name__ == "__main__":
    main()
