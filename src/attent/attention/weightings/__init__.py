"""The weightings: what weights are multiplied by after normalising, one idea a file."""

from __future__ import annotations

from attent import names
from attent.attention.parts import Weighting
from attent.attention.weightings.gaussian_window import GaussianWindow

WEIGHTINGS: dict[str, type[Weighting]] = names.parts(__name__)

__all__ = ["WEIGHTINGS", "GaussianWindow"]
