"""The weightings, one per file: factors on the weights after normalizing."""

from attent import registry
from attent.attention.base import Weighting
from attent.attention.weightings.gaussian_window import GaussianWindow

WEIGHTINGS: dict[str, type[Weighting]] = registry.parts(__name__)

__all__ = ["WEIGHTINGS", "GaussianWindow"]
