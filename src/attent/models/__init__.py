"""Models built from attention and layers; `model` has the base classes, `settings` and `build` construct models."""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("models")
