"""Comparisons of models after equal training, by source length, score or normalizer."""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("models")
