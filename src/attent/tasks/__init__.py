"""A recipe: everything that decides a run, read strictly from TOML, and followed from corpus to run folder."""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("models")
