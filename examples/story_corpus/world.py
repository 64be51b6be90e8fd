"""A small world of people, places and things: the sentences about it, and questions with their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar, get_args

from attent.tasks.sampling import Draw, choose

PEOPLE = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Hugo")
PLACES = ("kitchen", "garden", "cellar", "library", "office", "garage", "attic", "hall")
THINGS = ("ball", "lamp", "key", "book", "cup", "coat", "map", "hat")
MOVES = ("went to", "walked into", "hurried to")
TAKES = ("took", "picked up", "grabbed")
DROPS = ("put down", "left", "dropped")
# The numbers of people and things in a story: small, so that people return and things change hands.
CAST, OBJECTS = 3, 3
# The share of sentences in which somebody moves; and, among the others, the share in which somebody takes a thing if
# taking and dropping are both possible.
MOVING, TAKING = 0.6, 0.65

Item = TypeVar("Item")


def pick(draw: Draw, items: Sequence[Item], count: int) -> list[Item]:
    """Choose some items without repetition."""
    rest = list(items)
    return [rest.pop(int(draw() * len(rest))) for _ in range(count)]


def is_held_out(person: str, noun: str) -> bool:
    """Return whether the combination of a person with a place or a thing is only for tests; one in eight is."""
    nouns = PLACES if noun in PLACES else THINGS
    return (PEOPLE.index(person) + 3 * nouns.index(noun)) % 8 == 0


class Stay(NamedTuple):
    """A place where a thing has been.

    Args:
        location: the name of the place.
        holder: the person who first held the thing there.
        support: the indices, from 0, of the sentences from which this follows.
    """

    location: str
    holder: str
    support: frozenset[int]


@dataclass
class World:
    """The state of the people and things of a story, and the sentences that describe it.

    Attributes:
        sentences: the sentences in order, each ending with a period.
        combinations: the person, and the place or thing, in each sentence.
        place_of: the place of each person, and the index of the sentence that says so.
        places_of: the places where each person has been, in order.
        holder_of: the person who holds each thing, and the index of the sentence in which it was taken.
        stays: the stays of each thing, in order.
        handling: the indices of the sentences in which each person takes or puts down anything.
    """

    sentences: list[str] = field(default_factory=list)
    combinations: list[tuple[str, str]] = field(default_factory=list)
    place_of: dict[str, tuple[str, int]] = field(default_factory=dict)
    places_of: dict[str, list[str]] = field(default_factory=dict)
    holder_of: dict[str, tuple[str, int]] = field(default_factory=dict)
    stays: dict[str, list[Stay]] = field(default_factory=dict)
    handling: dict[str, list[int]] = field(default_factory=dict)

    def holds(self, person: str) -> list[str]:
        """Return the things that a person holds, in alphabetical order."""
        return sorted(thing for thing, (holder, _) in self.holder_of.items() if holder == person)

    def move(self, person: str, location: str, verb: str) -> None:
        """Move a person, and everything that the person holds, to a place."""
        now = self._say(person, location, verb)
        self.place_of[person] = (location, now)
        self.places_of.setdefault(person, []).append(location)
        for thing in self.holds(person):
            self.stays.setdefault(thing, []).append(Stay(location, person, frozenset((self.holder_of[thing][1], now))))

    def take(self, person: str, thing: str, verb: str) -> None:
        """Give a person a thing that nobody holds."""
        now = self._say(person, thing, verb)
        self.holder_of[thing] = (person, now)
        self.handling.setdefault(person, []).append(now)
        # what was put down elsewhere in the story was taken at a known place
        if person in self.place_of and thing not in self.stays:
            location, when = self.place_of[person]
            self.stays[thing] = [Stay(location, person, frozenset((when, now)))]

    def drop(self, person: str, thing: str, verb: str) -> None:
        """Put a thing down where its holder is."""
        now = self._say(person, thing, verb)
        del self.holder_of[thing]
        self.handling.setdefault(person, []).append(now)
        location, when = self.place_of[person]
        # the same place, now supported by another sentence
        self.stays[thing][-1] = Stay(location, person, frozenset((when, now)))

    def _say(self, person: str, noun: str, verb: str) -> int:
        self.sentences.append(f"{person} {verb} the {noun}.")
        self.combinations.append((person, noun))
        return len(self.sentences) - 1


def simulate(draw: Draw, sentences: int) -> World:
    """Simulate a number of events with a small cast."""
    world, cast, things = World(), pick(draw, PEOPLE, CAST), pick(draw, THINGS, OBJECTS)
    while len(world.sentences) < sentences:
        person = choose(draw, cast)
        current = world.place_of.get(person, (None, -1))[0]
        free = [thing for thing in things if thing not in world.holder_of and _reachable(world, thing, current)]
        held = [thing for thing in world.holds(person) if current is not None and thing in world.stays]
        if draw() < MOVING or not (free or held):
            world.move(
                person, choose(draw, [location for location in PLACES if location != current]), choose(draw, MOVES)
            )
        elif free and (not held or draw() < TAKING):
            world.take(person, choose(draw, free), choose(draw, TAKES))
        else:
            world.drop(person, choose(draw, held), choose(draw, DROPS))
    return world


def _reachable(world: World, thing: str, current: str | None) -> bool:
    """Return whether a person at a place can reach a thing: its place is unknown, or it is in the same place."""
    return thing not in world.stays or world.stays[thing][-1].location == current


QuestionKind = Literal["one", "two", "three", "yes-no", "count", "list"]
KINDS: tuple[QuestionKind, ...] = get_args(QuestionKind)
NUMBERS = ("none", "one", "two", "three")


class Question(NamedTuple):
    """A question about a story.

    Args:
        text: the text of the question.
        answer: the answer, in one or more words.
        support: the indices, from 0, of the sentences from which the answer follows.
    """

    text: str
    answer: str
    support: frozenset[int]


def ask(kind: QuestionKind, world: World, draw: Draw) -> Question | None:
    """Ask a question of this kind about a world; return None if there is nothing to ask."""
    questions = [*QUESTIONS[kind](world)]
    if not questions:
        return None
    # if several answers are possible, each is equally likely
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
        # places that the story names, so that a missing word does not give the answer away
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
