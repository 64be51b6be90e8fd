"""Questions about a world, with their answers and the sentences that support them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, get_args

from attent.tasks.stories.world import Draw, World, choose

QuestionKind = Literal["one", "two", "three", "yes-no", "count", "list"]
KINDS: tuple[QuestionKind, ...] = get_args(QuestionKind)
NUMBERS = ("none", "one", "two", "three")


class Question(NamedTuple):
    """A question about a story.

    Args:
        text: of the question.
        answer: in one or more words.
        support: the sentences from which the answer follows, counted from 0.
    """

    text: str
    answer: str
    support: frozenset[int]


def ask(kind: QuestionKind, world: World, draw: Draw) -> Question | None:
    """Ask a question of this kind about a world; None if nothing in it can be asked."""
    questions = [*QUESTIONS[kind](world)]
    if not questions:
        return None
    # every answer as often as the others, where several can be asked for
    answer = choose(draw, sorted({question.answer for question in questions}))
    return choose(draw, [question for question in questions if question.answer == answer])


def _one(world: World) -> Iterator[Question]:
    for person, (location, when) in world.place_of.items():
        yield Question(f"Where is {person}?", location, frozenset((when,)))


def _two(world: World) -> Iterator[Question]:
    for thing, stays in world.stays.items():
        yield Question(f"Where is the {thing}?", stays[-1].location, stays[-1].support)


def _three(world: World) -> Iterator[Question]:
    for thing, stays in world.stays.items():
        locations = [stay.location for stay in stays]
        if len(stays) > 1 and locations.count(locations[-1]) == 1:
            support = stays[-2].support | stays[-1].support
            if len(support) == 3:
                yield Question(f"Where was the {thing} before the {locations[-1]}?", locations[-2], support)


def _yes_no(world: World) -> Iterator[Question]:
    for person, (location, when) in world.place_of.items():
        support = frozenset((when,))
        yield Question(f"Is {person} in the {location}?", "yes", support)
        # places that the story names, so that a word that is missing does not give the answer
        for elsewhere in sorted({name for names in world.places_of.values() for name in names} - {location}):
            yield Question(f"Is {person} in the {elsewhere}?", "no", support)


def _count(world: World) -> Iterator[Question]:
    for person, sentences in world.handling.items():
        yield Question(f"How many things does {person} hold?", NUMBERS[len(world.holds(person))], frozenset(sentences))


def _list(world: World) -> Iterator[Question]:
    for person, sentences in world.handling.items():
        yield Question(
            f"What does {person} hold?", " and ".join(world.holds(person)) or "nothing", frozenset(sentences)
        )


QUESTIONS: dict[QuestionKind, Callable[[World], Iterator[Question]]] = {
    "one": _one,
    "two": _two,
    "three": _three,
    "yes-no": _yes_no,
    "count": _count,
    "list": _list,
}
