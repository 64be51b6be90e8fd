"""Position encodings: sinusoidal and learned are added to embeddings.

Rotary, alibi and relative_bias act inside attention.
"""

from torch import nn

from attent import registry
from attent.attention.positions.alibi import Alibi
from attent.attention.positions.learned import Learned
from attent.attention.positions.relative_bias import RelativeBias
from attent.attention.positions.rotary import Rotary
from attent.attention.positions.sinusoidal import Sinusoidal

POSITIONS: dict[str, type[nn.Module]] = registry.parts(__name__)

__all__ = ["POSITIONS", "Alibi", "Learned", "RelativeBias", "Rotary", "Sinusoidal"]
