"""Scenes by their numbers, of which the last few are remembered."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from attent.errors import ArgumentError
from attent.views.scene import Scene

# Each has the queries and keys of its maps.
SCENES = 8


class Scenes:
    """Scenes that are there from the start, and so many of those that came since of each run.

    Args:
        fixed: those that are there from the start, numbered from 0.
        most: how many of the others are remembered of each run.
    """

    def __init__(self, fixed: Sequence[Scene] = (), most: int = SCENES) -> None:
        self.fixed, self.most = tuple(fixed), most
        # by their numbers, each with its run, those last looked at last
        self._later: OrderedDict[int, tuple[int, Scene]] = OrderedDict()
        self._number = len(self.fixed)
        self._lock = threading.Lock()

    def add(self, scene: Scene, run: int = 0) -> int:
        """Remember a scene, of those of the same run the one forgotten for it that nobody has looked at for longest.

        Returns:
            Its number, which no other has.
        """
        with self._lock:
            number, self._number = self._number, self._number + 1
            self._later[number] = (run, scene)
            others = [one for one, (of, _) in self._later.items() if of == run]
            for one in others[: -self.most]:
                del self._later[one]
        return number

    def __getitem__(self, number: int) -> Scene:
        if 0 <= number < len(self.fixed):
            return self.fixed[number]
        with self._lock:
            if number not in self._later:
                raise ArgumentError(f"view {number} is not known, or was forgotten for later ones: make it again")
            self._later.move_to_end(number)
            return self._later[number][1]
