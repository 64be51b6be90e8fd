from random import Random

import pytest

from attent.tasks.stories.world import KINDS, Question, World, ask


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


def test_every_kind_worked_by_hand(world: World) -> None:
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


def test_what_is_put_down_stays_when_its_holder_leaves(world: World) -> None:
    world.drop("Anna", "ball", "left")  # 5
    world.move("Anna", "office", "went to")  # 6
    assert Question("Where is the ball?", "attic", frozenset({3, 5})) in questions("two", world)
    assert Question("What does Anna hold?", "nothing", frozenset({1, 5})) in questions("list", world)
    assert Question("How many things does Anna hold?", "none", frozenset({1, 5})) in questions("count", world)
    # four sentences say it
    assert not [question for question in questions("three", world) if "ball" in question.text]


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_world_in_which_nothing_happened_nothing_is_asked(kind: str) -> None:
    assert not questions(kind, World())
