"""Models built from attention and layers; `model` has the base classes, `settings` and `build` construct models."""

from attent.requirements import check_extra

check_extra("models")
