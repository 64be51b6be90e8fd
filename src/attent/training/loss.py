"""The loss of a translator."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from attent.axes import Logits, Tokens
from attent.data.tokenizer import PAD


def cross_entropy(logits: Logits, target: Tokens, label_smoothing: float = 0.0) -> Tensor:
    """The mean cross entropy of the target's tokens, in nats per token; PAD counts for nothing.

        −(1 − ε) log p(y) − ε/V Σ_v log p(v)

    Source: Szegedy et al. (2016), §7, arXiv 1512.00567; Vaswani et al. (2017), §5.4, arXiv 1706.03762.

    Args:
        logits: (B, T, V).
        target: the tokens to be told, (B, T).
        label_smoothing: ε, 0 to 1.

    Returns:
        A scalar, computed in float32.
    """
    return F.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), ignore_index=PAD, label_smoothing=label_smoothing)
