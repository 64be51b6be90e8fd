from __future__ import annotations

import pytest

from attent.errors import ArgumentError
from attent.serve.scenes import Scenes
from attent.views.scene import Scene


def test_the_first_stay_and_the_oldest_of_the_others_is_forgotten() -> None:
    fixed, *others = (Scene(str(number), {}, ()) for number in range(4))
    scenes = Scenes([fixed], most=2)
    assert [scenes.add(scene) for scene in others] == [1, 2, 3]
    assert (scenes[0], scenes[2], scenes[3]) == (fixed, others[1], others[2])
    with pytest.raises(ArgumentError, match="view 1 is not known, or was forgotten"):
        scenes[1]
    with pytest.raises(ArgumentError, match="view -1 is not known"):
        scenes[-1]


def test_a_run_forgets_its_own_and_what_was_looked_at_last_stays() -> None:
    scenes = Scenes(most=2)
    other = Scene("other", {}, ())
    kept = scenes.add(other, run=1)
    first = scenes.add(Scene("0", {}, ()))
    for number in range(1, 4):
        assert scenes[first].title == "0"
        scenes.add(Scene(str(number), {}, ()))
    assert scenes[kept] is other
    assert scenes[first].title == "0"
    with pytest.raises(ArgumentError, match="forgotten"):
        scenes[first + 1]
