"""The scores, one per file; a file's name is the name of its score."""

from attent import registry
from attent.attention.base import Score
from attent.attention.scores.additive import Additive
from attent.attention.scores.concat import Concat
from attent.attention.scores.cosine import Cosine
from attent.attention.scores.dot import Dot
from attent.attention.scores.gated import Gated
from attent.attention.scores.gaussian import Gaussian
from attent.attention.scores.general import General
from attent.attention.scores.location import Location
from attent.attention.scores.scaled_dot import ScaledDot

SCORES: dict[str, type[Score]] = registry.parts(__name__)

__all__ = ["SCORES", "Additive", "Concat", "Cosine", "Dot", "Gated", "Gaussian", "General", "Location", "ScaledDot"]
