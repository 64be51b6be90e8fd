"""The axis letters and tensor types used in signatures.

B batch (sequences) · H heads · G key/value heads (H is a multiple of G) · Tq query length · Tk key length
· T any length · Dk key width · Dv value width · E model width · V vocabulary, all counted in elements.

Public functions check their arguments themselves and raise ShapeError. These types document internals and are checked
only in the test suite, where jaxtyping is installed; without it they are plain tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from typing import TypeAlias

    Queries: TypeAlias = Tensor  # (B, H, Tq, Dk)
    Keys: TypeAlias = Tensor  # (B, G, Tk, Dk)
    Values: TypeAlias = Tensor  # (B, G, Tk, Dv)
    Scores: TypeAlias = Tensor  # (B, H, Tq, Tk)
    Allowed: TypeAlias = Tensor  # bool, broadcasts to (B, H, Tq, Tk)
    Contexts: TypeAlias = Tensor  # (B, H, Tq, Dv)
    Features: TypeAlias = Tensor  # (B, T, E)
    StepFeatures: TypeAlias = Tensor  # (B, E), of one token of each sequence
    Tokens: TypeAlias = Tensor  # (B, T) int64
    Lengths: TypeAlias = Tensor  # (B,) int64
    Logits: TypeAlias = Tensor  # (B, T, V)
else:
    try:
        from jaxtyping import Bool, Float, Int
    except ImportError:
        Queries = Keys = Values = Scores = Allowed = Contexts = Features = StepFeatures = Tokens = Lengths = Logits = (
            Tensor
        )
    else:
        Queries = Float[Tensor, "B H Tq Dk"]
        Keys = Float[Tensor, "B G Tk Dk"]
        Values = Float[Tensor, "B G Tk Dv"]
        Scores = Float[Tensor, "B H Tq Tk"]
        Allowed = Bool[Tensor, "#B #H #Tq #Tk"]
        Contexts = Float[Tensor, "B H Tq Dv"]
        Features = Float[Tensor, "B T E"]
        StepFeatures = Float[Tensor, "B E"]
        Tokens = Int[Tensor, "B T"]
        Lengths = Int[Tensor, "B"]
        Logits = Float[Tensor, "B T V"]
