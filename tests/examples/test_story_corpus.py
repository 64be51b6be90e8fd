import json
import re
from pathlib import Path
from random import Random

import pytest
from pydantic import ValidationError
from story_corpus.corpus import Stories, StoriesSettings, Story, stories
from story_corpus.world import DROPS, KINDS, MOVES, TAKES, Question, World, ask, is_held_out

from attent.errors import ArgumentError

FEW = StoriesSettings(training_stories=60, held_out_stories=30)
SENTENCE = re.compile(rf"(\w+) (?:({'|'.join(MOVES)})|({'|'.join(TAKES)})|({'|'.join(DROPS)})) the (\w+)\.")


@pytest.fixture(scope="module")
def built() -> Stories:
    return stories(FEW)


def reread(sentences: list[str], question: str) -> str:
    """Answer a question by reading the sentences alone."""
    locations: dict[str, str] = {}
    holder: dict[str, str] = {}
    stays: dict[str, list[str]] = {}

    def at(thing: str, location: str) -> None:
        if stays.setdefault(thing, [location])[-1] != location:
            stays[thing].append(location)

    for sentence in sentences:
        match = SENTENCE.fullmatch(sentence)
        assert match, sentence
        person, moved, took, _, noun = match.groups()
        if moved:
            locations[person] = noun
            for thing in [thing for thing, holder_name in holder.items() if holder_name == person]:
                at(thing, noun)
        elif took:
            assert noun not in holder
            holder[noun] = person
            if person in locations:
                at(noun, locations[person])
        else:
            # who puts a thing down held it, unless the sentence in which it was taken is left out
            assert holder.pop(noun, person) == person
            if person in locations:
                at(noun, locations[person])
    words = question.rstrip("?").split()
    held = sorted(thing for thing, holder_name in holder.items() if holder_name in words)
    match words:
        case ["Where", "is", "the", thing]:
            return stays[thing][-1]
        case ["Where", "is", person]:
            return locations[person]
        case ["Where", "was", "the", thing, "before", "the", _]:
            return stays[thing][-2]
        case ["Is", person, "in", "the", where]:
            return "yes" if locations[person] == where else "no"
        case ["How", "many", *_]:
            return ("none", "one", "two", "three")[len(held)]
        case _:
            return " and ".join(held) or "nothing"


def parts(corpus: Stories) -> list[Story]:
    return [*corpus.train, *corpus.validation, *corpus.test]


def test_answers_follow_from_the_story_and_from_the_supporting_sentences_alone(built: Stories) -> None:
    for story in parts(built):
        assert reread([*story.sentences], story.question) == story.answer
        assert reread([story.sentences[number] for number in story.support], story.question) == story.answer, story
        assert 6 <= len(story.sentences) <= 15
        assert len(story.sentences) - len(story.support) >= 3


def test_the_kinds_are_asked_alike_and_have_so_many_supporting_sentences(built: Stories) -> None:
    for part, count in ((built.train, 10), (built.validation, 5), (built.test, 5)):
        assert [story.kind for story in part] == [*KINDS] * count
    for kind, facts in (("one", 1), ("two", 2), ("three", 3), ("yes-no", 1)):
        assert {len(story.support) for story in parts(built) if story.kind == kind} == {facts}


def test_held_out_combinations_are_in_the_test_alone(built: Stories) -> None:
    def has_held_out(sentence: str) -> bool:
        words = sentence.split()
        return is_held_out(words[0], words[-1].rstrip("."))

    assert not [story for story in (*built.train, *built.validation) if any(map(has_held_out, story.sentences))]
    assert all(any(has_held_out(story.sentences[number]) for number in story.support) for story in built.test)
    nouns = ("kitchen", "garden", "cellar", "library", "office", "garage", "attic", "hall")
    assert sum(is_held_out("Anna", noun) for noun in nouns) == 1


def test_no_story_is_told_twice_and_more_to_train_on_leave_the_others_alone(built: Stories) -> None:
    second = stories(FEW.model_copy(update={"seed": 1}))
    assert not {story.text for story in parts(built)} & {story.text for story in parts(second)}
    assert len({story.text for story in parts(built)}) == 120
    more = stories(FEW.model_copy(update={"training_stories": 66}))
    assert (more.validation, more.test, more.train[:60]) == (built.validation, built.test, built.train)


def test_supporting_sentences_that_name_what_is_asked_for_precede_the_others_and_the_answer(tmp_path: Path) -> None:
    message = ("Ben went to the hall.", "Ben went to the attic.", "Ben took the hat.", "Ben hurried to the office.")
    three = Story("three", message, "Where was the hat before the office?", "attic", (1, 2, 3))
    assert three.supported_answer == "Ben took the hat. Ben hurried to the office. Ben went to the attic. attic"
    two = Story("two", message[:3], "Where is the hat?", "attic", (1, 2))
    assert two.supported_answer == "Ben took the hat. Ben went to the attic. attic"
    held = Story("list", message, "What does Ben hold?", "hat", (2,))
    assert held.supported_answer == "Ben took the hat. hat"
    Stories([three], [held], []).write(tmp_path, with_support=True)
    assert (tmp_path / "train.tsv").read_text(encoding="utf-8") == f"{three.text}\t{three.supported_answer}\n"
    assert json.loads((tmp_path / "valid.jsonl").read_text(encoding="utf-8"))["answer"] == "hat"
    with pytest.raises(ArgumentError, match="cannot be written"):
        Stories([three], [held], []).write(tmp_path / "train.tsv")


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValidationError, match="longest must be at least shortest = 9, got 7"):
        StoriesSettings(shortest=9, longest=7)
    with pytest.raises(ValidationError, match="kinds must be distinct"):
        StoriesSettings(kinds=("one", "one"))
    sizes = {"shortest": 6, "longest": 6, "distracting": 6, "training_stories": 1, "held_out_stories": 1}
    with pytest.raises(ArgumentError, match="no story of 6 sentences with 6 distracting ones"):
        stories(StoriesSettings(kinds=("one",), **sizes))


@pytest.fixture
def world() -> World:
    """Anna takes the ball from the hall to the attic, Ben the key into the hall."""
    world = World()
    world.move("Anna", "hall", "went to")  # 0
    world.take("Anna", "ball", "took")  # 1
    world.take("Ben", "key", "took")  # 2
    world.move("Anna", "attic", "went to")  # 3
    world.move("Ben", "hall", "went to")  # 4
    return world


def questions(kind: str, world: World) -> set[Question]:
    draw = Random(0).random
    return {question for _ in range(100) if (question := ask(kind, world, draw)) is not None}  # pyright: ignore[reportArgumentType]


def test_every_kind_of_question_worked_by_hand(world: World) -> None:
    assert world.sentences[3] == "Anna went to the attic."
    assert questions("one", world) == {
        Question("Where is Anna?", "attic", frozenset({3})),
        Question("Where is Ben?", "hall", frozenset({4})),
    }
    assert questions("two", world) == {
        Question("Where is the ball?", "attic", frozenset({1, 3})),
        Question("Where is the key?", "hall", frozenset({2, 4})),
    }
    assert questions("three", world) == {Question("Where was the ball before the attic?", "hall", frozenset({0, 1, 3}))}
    assert questions("yes-no", world) >= {
        Question("Is Anna in the hall?", "no", frozenset({3})),
        Question("Is Anna in the attic?", "yes", frozenset({3})),
    }
    assert Question("How many things does Ben hold?", "one", frozenset({2})) in questions("count", world)
    assert Question("What does Anna hold?", "ball", frozenset({1})) in questions("list", world)
    # where nothing happened nothing is asked
    assert not any(questions(kind, World()) for kind in KINDS)


def test_what_is_put_down_stays_when_its_holder_leaves(world: World) -> None:
    world.drop("Anna", "ball", "left")  # 5
    world.move("Anna", "office", "went to")  # 6
    assert Question("Where is the ball?", "attic", frozenset({3, 5})) in questions("two", world)
    assert Question("What does Anna hold?", "nothing", frozenset({1, 5})) in questions("list", world)
    assert Question("How many things does Anna hold?", "none", frozenset({1, 5})) in questions("count", world)
    # four sentences say it
    assert not [question for question in questions("three", world) if "ball" in question.text]
