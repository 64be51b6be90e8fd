"""The position-wise feed-forward network."""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from attent.errors import check_known
from attent.ops.linear import feed_forward

Activation = Literal["relu", "gelu", "silu"]
ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


class FeedForward(nn.Module):
    """Two linear maps with a nonlinearity between them, applied to every position.

        FFN(x) = max(0, x W₁ + b₁) W₂ + b₂

    Source: Vaswani et al. (2017), §3.3, equation 2, arXiv 1706.03762; with gelu Devlin et al. (2018), arXiv 1810.04805;
    silu, x · σ(x), also called swish: Ramachandran et al. (2017), arXiv 1710.05941.

    Args:
        width: the model width E, of the input and of the output.
        hidden: the width between the two maps, the paper's d_ff.
        activation: "relu" (the paper's), "gelu" or "silu".

    Raises:
        UnknownNameError: no activation has that name.
    """

    def __init__(self, width: int, hidden: int, *, activation: Activation = "relu") -> None:
        super().__init__()
        check_known("activation", activation, ACTIVATIONS)
        self.activation = ACTIVATIONS[activation]
        self.widen = nn.Linear(width, hidden)
        self.narrow = nn.Linear(hidden, width)
        for layer in (self.widen, self.narrow):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Return FFN(x), (…, E) → (…, E)."""
        return feed_forward(features, self.widen, self.narrow, self.activation)
