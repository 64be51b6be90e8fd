"""The corpus of stories: `Anna went to the hall. … Where is Anna?` → `hall`, with the supporting sentences.

The stories follow tasks 1, 2, 3, 6, 7 and 8 of Weston et al. (2015), "Towards AI-Complete Question Answering", arXiv
1502.05698, with a different world and vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from pydantic import BaseModel, Field, field_validator, model_validator

from attent.errors import ArgumentError
from story_corpus.world import KINDS, Draw, QuestionKind, ask, is_held_out, simulate


class StoriesSettings(BaseModel, extra="forbid", frozen=True):
    """Settings of generated stories."""

    kinds: tuple[QuestionKind, ...] = Field(KINDS, description="kinds of questions, each asked equally often")
    training_stories: int = Field(
        20_000, ge=1, le=10_000_000, description="stories to train on, each with one question"
    )
    held_out_stories: int = Field(1_000, ge=1, description="number of stories to validate on, and to test on")
    shortest: int = Field(6, ge=6, le=100, description="minimum number of sentences in a story")
    longest: int = Field(15, ge=6, le=100, description="maximum number of sentences in a story")
    distracting: int = Field(3, ge=0, description="minimum number of sentences that do not support the answer")
    seed: int = Field(0, ge=0, description="the same settings and seed give the same stories")

    @field_validator("kinds")
    @classmethod
    def _distinct(cls, kinds: tuple[QuestionKind, ...]) -> tuple[QuestionKind, ...]:
        if not kinds or len(set(kinds)) != len(kinds):
            raise ArgumentError(f"kinds must be distinct and at least one, got {list(kinds)}")
        return kinds

    @model_validator(mode="after")
    def _shortest_is_no_longer(self) -> StoriesSettings:
        if self.longest < self.shortest:
            raise ArgumentError(f"longest must be at least shortest = {self.shortest}, got {self.longest}")
        return self


# Names of the files in a folder.
TRAIN, VALIDATION, TEST = "train", "valid", "test"
TRIES = 3_000


@dataclass(frozen=True)
class Story:
    """A story with a question.

    Args:
        kind: the kind of the question.
        sentences: the sentences of the story, in order.
        question: the question about the story.
        answer: the answer, in one or more words.
        support: the indices, from 0, of the sentences from which the answer follows.
    """

    kind: QuestionKind
    sentences: tuple[str, ...]
    question: str
    answer: str
    support: tuple[int, ...]

    @property
    def text(self) -> str:
        """The story and the question in one line."""
        return " ".join((*self.sentences, self.question))

    @property
    def supported_answer(self) -> str:
        """The supporting sentences and the answer.

        Sentences with a name or noun from the question come first, in the order of a look-up.
        """
        words = self.question.rstrip("?").split()
        sentences = [self.sentences[number] for number in self.support]
        return " ".join((*sorted(sentences, key=lambda sentence: not _names(sentence, words)), self.answer))


@dataclass(frozen=True)
class Stories:
    """Stories to train on, to validate on and to test on; the three parts have no story in common.

    Args:
        train: stories without the held-out combinations of a person with a place or a thing.
        validation: stories without these combinations.
        test: stories in which at least one supporting sentence has such a combination.
    """

    train: Sequence[Story]
    validation: Sequence[Story]
    test: Sequence[Story]

    def write(self, folder: Path, *, with_support: bool = False) -> None:
        """Write the stories to a folder: train.tsv, valid.tsv and test.tsv, with text, tab and answer per line.

        Next to each is a .jsonl file with all fields of the stories.

        Args:
            folder: the folder; existing files are overwritten.
            with_support: whether each answer in a .tsv is preceded by its supporting sentences.

        Raises:
            ArgumentError: a file cannot be written.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, part in ((TRAIN, self.train), (VALIDATION, self.validation), (TEST, self.test)):
                targets = [story.supported_answer if with_support else story.answer for story in part]
                pairs = "".join(f"{story.text}\t{target}\n" for story, target in zip(part, targets, strict=True))
                (folder / f"{name}.tsv").write_text(pairs, encoding="utf-8", newline="")
                lines = "".join(json.dumps(asdict(story)) + "\n" for story in part)
                (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8", newline="")
        except OSError as error:
            raise ArgumentError(f"{error.filename} cannot be written: {error.strerror}") from error


def stories(settings: StoriesSettings) -> Stories:
    """Generate stories, with the same number of each kind of question.

    Raises:
        ArgumentError: there are too few different stories with these settings.
    """
    texts: set[str] = set()

    def part(purpose: str, count: int) -> list[Story]:
        # a generator for each purpose, so that more stories for one purpose leave the others unchanged
        draw = Random(f"{settings.seed} stories, {purpose}").random
        return [
            _draw(settings.kinds[number % len(settings.kinds)], settings, draw, purpose == TEST, texts)
            for number in range(count)
        ]

    test, validation = part(TEST, settings.held_out_stories), part(VALIDATION, settings.held_out_stories)
    return Stories(part(TRAIN, settings.training_stories), validation, test)


def _names(sentence: str, words: Sequence[str]) -> bool:
    """Return whether the person, the place or the thing of a sentence is among these words."""
    person, *_, noun = sentence.rstrip(".").split()
    return person in words or noun in words


def _draw(kind: QuestionKind, settings: StoriesSettings, draw: Draw, is_test: bool, texts: set[str]) -> Story:
    """Draw a story that is not in `texts`, and add it.

    The length is drawn only once, so that rejecting stories does not change the distribution of lengths.
    """
    length = settings.shortest + int(draw() * (settings.longest - settings.shortest + 1))
    for _ in range(TRIES):
        world = simulate(draw, length)
        held_out = {number for number, (person, noun) in enumerate(world.combinations) if is_held_out(person, noun)}
        if bool(held_out) is not is_test:
            continue
        question = ask(kind, world, draw)
        if question is None or len(world.sentences) - len(question.support) < settings.distracting:
            continue
        story = Story(kind, tuple(world.sentences), question.text, question.answer, tuple(sorted(question.support)))
        if (is_test and not held_out & question.support) or story.text in texts:
            continue
        texts.add(story.text)
        return story
    raise ArgumentError(
        f"no story of {length} sentences with {settings.distracting} distracting ones and a question of kind {kind!r}"
    )
