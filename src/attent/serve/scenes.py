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
    """Scenes that are there from the start, and so many of those that came since.

    Args:
        fixed: those that are there from the start, numbered from 0.
        most: how many of the others are remembered.
    """

    def __init__(self, fixed: Sequence[Scene] = (), most: int = SCENES) -> None:
        self.fixed, self.most = tuple(fixed), most
        self._later: OrderedDict[int, Scene] = OrderedDict()
        self._number = len(self.fixed)
        self._lock = threading.Lock()

    def add(self, scene: Scene) -> int:
        """Remember a scene, the oldest of the others forgotten for it; its number, which no other has."""
        with self._lock:
            number, self._number = self._number, self._number + 1
            self._later[number] = scene
            if len(self._later) > self.most:
                self._later.popitem(last=False)
        return number

    def __getitem__(self, number: int) -> Scene:
        if 0 <= number < len(self.fixed):
            return self.fixed[number]
        with self._lock:
            if number not in self._later:
                raise ArgumentError(f"view {number} is not known, or was forgotten for later ones: make it again")
            return self._later[number]
