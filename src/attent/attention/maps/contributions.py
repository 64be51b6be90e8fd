"""A key's contribution to an output beyond its weight: the norm of what it adds, and the gradient by its weight.

Both are weightings, so that a map of them is a map of weights like any other: rows, tiles and statistics are computed
on demand, in memory linear in the sequence.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from attent.attention import mask_info
from attent.attention.base import Normalizer, Pairs, Weighting
from attent.attention.call import Call
from attent.errors import ArgumentError, ShapeError


@dataclass
class HeadOutputs:
    """The values of a call, and the projection of its contexts.

    Args:
        value: a function that returns the values, which reshape to (B, G, Tk, Dv), without a graph, and raises
            StaleMapError if they have since been changed.
        dropout: the dropout of the weights in this call.
        projection: a function that returns W^O, (E, H·Dv), which multiplies the merged contexts of all heads; None if
            the contexts are the output; a string with the reason if it is not known.
        context: the contexts with their graph, or those of each query; None unless gradients are to be computed.
    """

    value: Callable[[], Tensor]
    dropout: float = 0.0
    projection: Callable[[], Tensor] | str | None = (
        "norms need the output projection, which attent.watch finds in a model"
    )
    context: Tensor | Sequence[Tensor] | None = None

    def norm_call(self, call: Call) -> Call:
        """Return the call whose weights are the norms.

        Raises:
            ArgumentError: the output projection is not known.
        """
        if isinstance(self.projection, str):
            raise ArgumentError(self.projection)
        # the length of a vector does not have its weight's sign
        normalizer = call.normalizer if call.normalizer.is_distribution else Magnitudes(call.normalizer)
        return replace(call, normalizer=normalizer, weighting=ValueNorms(call, self.value, self.projection))

    def gradient_call(self, call: Call, gradient: Tensor | Sequence[Tensor] | None) -> Call:
        """Return the call whose weights are multiplied by the gradients of a number.

        Args:
            call: the call.
            gradient: the number's gradient with respect to the contexts, in their shape; None if it does not depend on
                them.

        Raises:
            ArgumentError: dropout was applied to the weights.
        """
        if self.dropout:
            raise ArgumentError(
                "gradients by weights under dropout mean little: call model.eval() before running the model"
            )
        if gradient is None:
            gradient = torch.zeros((), dtype=call.accumulation_dtype, device=call.device).expand(
                call.batch, call.heads, call.queries, 1
            )
        elif not isinstance(gradient, Tensor):
            gradient = torch.stack([*gradient], 1)
        return replace(
            call,
            weighting=OutputGradients(call, self.value, gradient.reshape(call.batch, call.heads, call.queries, -1)),
        )


@dataclass(frozen=True, eq=False)
class Contribution(Weighting):
    """A weighting computed from a call's values.

    Args:
        call: the call.
        value: a function that returns the values, which reshape to (B, G, Tk, Dv).
    """

    call: Call
    value: Callable[[], Tensor]

    @cached_property
    def values(self) -> Tensor:
        """The values of every head, (B, H, Tk, Dv); zeros at keys that no query sees if they hold NaN or infinities."""
        call, value = self.call, self.value()
        if value.shape[:-1].numel() not in (
            call.batch * call.key_heads * call.keys,
            call.batch * call.heads * call.keys,
        ):
            raise ShapeError(
                f"values of {call.batch} sequences and {call.keys} keys have the shape {tuple(value.shape)}"
            )
        value = call.repeat_kv(value.reshape(call.batch, -1, call.keys, value.shape[-1])).to(call.accumulation_dtype)
        visible = None if bool(value.sum().isfinite()) else mask_info.visible_keys_of(call)
        return value if visible is None else value.masked_fill(~visible[..., None], 0.0)

    def factors(self, pairs: Pairs) -> Tensor:
        """Return the factors of this tile, including those of the call's own weighting."""
        factors = self.own_factors(pairs)
        return factors if self.call.weighting is None else factors * self.call.weighting.factors(pairs)

    def own_factors(self, pairs: Pairs) -> Tensor:
        """Return the factors of this tile, broadcasting to (B, H, Tq, Tk)."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class ValueNorms(Contribution):
    """The norm ‖f(xⱼ)‖ of each key's value after the output projection, so that weights times it are ‖αᵢⱼ f(xⱼ)‖.

        f(x) = (x W^V + b^V) W^O

    for each head, with its own rows of W^O. Kobayashi et al. 2020, §2.3, equation 4 (arXiv:2004.10102).

    Args:
        projection: a function that returns W^O as PyTorch stores it, (E, H·Dv); None if contexts are the output.
    """

    projection: Callable[[], Tensor] | None

    @cached_property
    def norms(self) -> Tensor:
        """‖f(xⱼ)‖ of each head and key, (B, H, Tk)."""
        values = self.values
        if self.projection is not None:
            heads, width = values.shape[1], values.shape[3]
            weight = self.projection()
            if weight.shape[1] != heads * width:
                raise ShapeError(
                    f"the output projection takes {weight.shape[1]} features, and {heads} heads have {width} each"
                )
            weights = weight.detach().to(values.dtype).unflatten(1, (heads, width)).transpose(0, 1)  # (H, E, Dv)
            # W = QR, and Q changes no norm: nothing is as large as H · Tk · E
            values = values @ torch.linalg.qr(weights, mode="r").R.mT
        return values.norm(dim=-1)

    def own_factors(self, pairs: Pairs) -> Tensor:
        """Return ‖f(xⱼ)‖, (B, H, 1, Tk)."""
        return self.norms[:, :, None, pairs.key_index]


@dataclass(frozen=True, eq=False)
class OutputGradients(Contribution):
    """The gradient of a number y by each weight, ∂y/∂αᵢⱼ = ∂y/∂cᵢ · vⱼ, where cᵢ = Σⱼ αᵢⱼ vⱼ is the context of query i.

    The gradients with respect to the contexts are only as large as the contexts; those with respect to all pairs are
    computed by tiles and never held.

    Args:
        gradient: ∂y/∂c, (B, H, Tq, Dv).
    """

    gradient: Tensor
    is_nonnegative: ClassVar[bool] = False

    def own_factors(self, pairs: Pairs) -> Tensor:
        """Return ∂y/∂αᵢⱼ, (B, H, Tq, Tk)."""
        gradient, values = self.gradient[:, :, pairs.query_index], self.values[:, :, pairs.key_index]
        return gradient.to(values.dtype).expand(-1, -1, -1, values.shape[-1]) @ values.mT


@dataclass(frozen=True)
class Magnitudes(Normalizer):
    """The absolute values of weights that may be negative.

    Args:
        normalizer: the normalizer that computes the weights.
    """

    normalizer: Normalizer
    is_distribution: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = False

    def normalize(self, scores: Tensor) -> Tensor:
        """Return the absolute weights of scores (…, Tk)."""
        return self.normalizer.normalize(scores).abs()

    def __call__(self, scores: Tensor, allowed: Tensor | None = None) -> Tensor:
        return self.normalizer(scores, allowed).abs()
