"""Measurements of a run's speed, and calibration of the choice between dense attention and PyTorch's."""

from __future__ import annotations

from attent.requirements import check_extra

check_extra("models")
