"""Old import paths: modules that moved stay importable under their old names, and their objects under their old names.

Both paths lead to the same objects, so that `isinstance` agrees. Importing `attent` installs the finder.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

# Old module or package → new one. A package stands for every module in it that has no row of its own.
MODULES = {
    "attent.attention.formula": "attent.attention.reference",
    "attent.attention.normalisers": "attent.attention.normalizers",
    "attent.attention.parts": "attent.attention.base",
    "attent.config": "attent.tasks",
    "attent.database.answers": "attent.database.answer",
    "attent.database.exact": "attent.database.matching",
    "attent.database.strings": "attent.database.matching",
    "attent.evaluation.symmetrising": "attent.evaluation.symmetrization",
    "attent.experiments.compare_scores": "attent.experiments.compare_parts",
    "attent.models.encoder_decoder": "attent.models.model",
    "attent.models.encoder_settings": "attent.models.settings",
    "attent.models.rnn_settings": "attent.models.settings",
    "attent.models.transformer_settings": "attent.models.settings",
    "attent.names": "attent.registry",
    "attent.regression.cells": "attent.regression.smoother",
    "attent.regression.expansion": "attent.regression.smoother",
    "attent.training.class_loss": "attent.training.loss",
    "attent.training.tensorboard": "attent.training.loggers",
    "attent.views.arranged": "attent.views.build_scene",
    "attent.views.scene_panels": "attent.views.panel",
}
# New module → the old names of its objects and the new ones.
OBJECTS: dict[str, dict[str, str]] = {
    "attent.database.matching": {"Alike": "StringScore"},
    "attent.models.model": {"State": "DecoderState"},
    "attent.regression.smoother": {"Cells": "Boxes", "Expansion": "FastGaussTransform", "cells": "split_boxes", "near": "near_keys"},
    "attent.training.loss": {"class_loss": "classification_cross_entropy"},
    "attent.views.build_scene": {"arranged": "build_scene"},
}


def new_name(module: str) -> str | None:
    """Return the new name of a module that moved; None for any other module."""
    package, rest = module, ""
    while package not in MODULES:
        package, _, last = package.rpartition(".")
        if not package:
            return None
        rest = f".{last}{rest}"
    return MODULES[package] + rest


class OldModule(ModuleType):
    """A module under its old name, with the attributes of the new module."""

    def __init__(self, name: str, target: str) -> None:
        super().__init__(name, f"{name} is now {target}.")
        self.__target = target
        # an empty path, by which Python's own finders cannot reach the new files
        self.__path__ = []

    def __getattr__(self, name: str) -> object:
        target = importlib.import_module(self.__target)
        return getattr(target, OBJECTS.get(self.__target, {}).get(name, name))

    def __dir__(self) -> list[str]:
        return dir(importlib.import_module(self.__target))


class OldPaths(MetaPathFinder, Loader):
    """Finds and loads old modules by `MODULES`; runs after Python's own finders."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the specification of an old module, or None."""
        if new_name(fullname) is None:
            return None
        return ModuleSpec(fullname, self, is_package=fullname in MODULES)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the new module, and return one that forwards to it under the old name."""
        target = new_name(spec.name) or spec.name
        importlib.import_module(target)
        return OldModule(spec.name, target)

    def exec_module(self, module: ModuleType) -> None:
        """Warn about the old name; only a user's import reaches this."""
        warnings.warn(f"{module.__name__} is now {new_name(module.__name__)}", DeprecationWarning, stacklevel=2)


def install() -> None:
    """Make old paths importable."""
    if not any(isinstance(finder, OldPaths) for finder in sys.meta_path):
        sys.meta_path.append(OldPaths())
