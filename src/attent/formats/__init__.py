"""A run's model in the form of other engines, and those engines in the place of our own."""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("models")
