"""PyTorch's `nn.MultiheadAttention` with fused attention, and weights that are computed when they are read."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.arguments import prepare
from attent.attention.attend import run
from attent.attention.base import Mask
from attent.attention.call import Prepared
from attent.attention.capture.watch import is_watched, report
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.maps.lazy_tensor import LazyTensor
from attent.attention.masks.causal import Causal
from attent.attention.masks.padding import Padding
from attent.attention.masks.table import Table
from attent.errors import ArgumentError, ShapeError
from attent.ops.eligibility import is_transformed
from attent.ops.linear import linear


class MultiheadAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` with the same arguments, parameters, masks and results, by `attent.attend`.

    Weights are a `LazyTensor`: asking for them, as `need_weights=True` does by default, costs nothing until their
    numbers are read.

    What differs: a query that may see nothing gets zeros, where PyTorch's module gives NaN; the weights are those
    before dropout; dropped weights are others than PyTorch's at the same seed. Compiled graphs, transforms of
    torch.func, traces and nested tensors run PyTorch's own code.

    Example:
        >>> layer = attent.integrations.torch.MultiheadAttention(512, 8, batch_first=True)
        >>> context, weights = layer(features, features, features)
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend, in PyTorch's signature.

        Args:
            query: (Tq, E), (Tq, B, E), or (B, Tq, E) with `batch_first`.
            key: the same with Tk and `kdim`.
            value: the same with Tk and `vdim`.
            key_padding_mask: (B, Tk) or (Tk,); boolean, True for keys that are hidden, or a float term added to the
                scores.
            need_weights: whether to return the weights.
            attn_mask: (Tq, Tk) or (B · H, Tq, Tk); boolean, True for pairs that are hidden, or a float term added to
                the scores.
            average_attn_weights: whether the weights are the mean over the heads.
            is_causal: a promise that `attn_mask` hides the keys after each query's own, and nothing else.

        Returns:
            The result, of the query's layout, and the weights, (B, Tq, Tk) or (B, H, Tq, Tk), without B if the query
            has none; None without `need_weights`.

        Raises:
            ShapeError: tensors that do not fit together.
            ArgumentError: `is_causal` without an `attn_mask`.
        """
        if torch.compiler.is_compiling() or torch.jit.is_tracing() or is_transformed() or query.is_nested:  # pyright: ignore[reportPrivateImportUsage]
            return super().forward(
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )
        if is_causal and attn_mask is None:
            raise ArgumentError("is_causal is a promise about attn_mask, which must be given too")
        is_batched = query.dim() == 3
        _check_axes(query, key, value, self)
        parts = [self._split_heads(part) for part in self._project(query, key, value)]
        batch, _, queries, _ = parts[0].shape
        keys = parts[1].shape[2]
        added = (self.bias_k is not None) + self.add_zero_attn
        # PyTorch takes the hint where it takes its fused kernel
        if is_causal and key_padding_mask is None and not need_weights and not added:
            mask, bias = Causal(), None
        else:
            mask, bias = _merge_masks(attn_mask, key_padding_mask, (batch, self.num_heads, queries, keys), added)
        prepared = self._prepare(parts, mask, bias)
        context = run(prepared)
        if is_watched():
            report(self, AttentionMap.of(prepared), prepared.value, context)
        context = context.transpose(1, 2)  # (B, Tq, H, D)
        context = (context if self.batch_first or not is_batched else context.transpose(0, 1)).flatten(2)
        output = linear(context if is_batched else context[0], self.out_proj.weight, self.out_proj.bias)
        if not need_weights:
            return output, None
        weights, dtype = AttentionMap.of(prepared), prepared.query.dtype
        return output, LazyTensor(weights, dtype, is_averaged=average_attn_weights, is_batched=is_batched)

    def _prepare(self, parts: Sequence[Tensor], mask: Mask | None, bias: Tensor | None) -> Prepared:
        """Return the call of queries, keys and values with heads, (B, H, T, D)."""
        dropout = self.dropout if self.training else 0.0
        return prepare(
            parts[0],
            self._with_added_keys(parts[1], self.bias_k),
            self._with_added_keys(parts[2], self.bias_v),
            mask=mask,
            bias=bias,
            query_start=None if mask is None else 0,
            dropout=dropout,
            seed=torch.randint(2**31 - 1, ()) if dropout else None,
        )

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Return queries, keys and values in the layout of the arguments."""
        if self.in_proj_weight is not None and query is key and key is value:
            return linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return tuple(linear(*operands) for operands in zip((query, key, value), weights, biases, strict=True))

    def _split_heads(self, features: Tensor) -> Tensor:
        """Return (B, H, T, D) of (T, E), (T, B, E) or, batch first, (B, T, E)."""
        heads = features.unflatten(-1, (self.num_heads, self.head_dim))
        if features.dim() == 2:
            return heads.transpose(0, 1)[None]
        return heads.transpose(1, 2) if self.batch_first else heads.permute(1, 2, 0, 3)

    def _with_added_keys(self, features: Tensor, bias: Tensor | None) -> Tensor:
        """Return keys or values (B, H, Tk, D) with `bias_k` or `bias_v`, and with zeros, where the module adds them."""
        if bias is not None:
            learned = (
                bias.to(features.dtype).view(1, self.num_heads, 1, self.head_dim).expand(len(features), -1, -1, -1)
            )
            features = torch.cat([features, learned], 2)
        return F.pad(features, (0, 0, 0, 1)) if self.add_zero_attn else features


def _check_axes(query: Tensor, key: Tensor, value: Tensor, module: nn.MultiheadAttention) -> None:
    """Raise if the tensors do not have the axes and widths of the module."""
    widths = module.embed_dim, module.kdim, module.vdim
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (query, key, value))
    if query.dim() not in (2, 3) or not query.dim() == key.dim() == value.dim():
        raise ShapeError(f"query, key and value must all have two axes, or three, got {shapes}")
    if any(tensor.shape[-1] != width for tensor, width in zip((query, key, value), widths, strict=True)):
        raise ShapeError(f"query, key and value must be {', '.join(map(str, widths))} wide, got {shapes}")


def _merge_masks(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, shape: tuple[int, int, int, int], added: int
) -> tuple[Mask | None, Tensor | None]:
    """Return the mask and the bias of (B, H, Tq, Tk) scores that PyTorch's two masks mean.

    Every query sees the added keys.
    """
    batch, heads, queries, keys = shape
    mask: Mask | None = None
    bias: Tensor | None = None
    for name, tensor, expected in (
        ("attn_mask", attn_mask, {2: (queries, keys), 3: (batch * heads, queries, keys)}),
        ("key_padding_mask", key_padding_mask, {1: (keys,), 2: (batch, keys)}),
    ):
        if tensor is None:
            continue
        if tuple(tensor.shape) != expected.get(tensor.dim()):
            raise ShapeError(f"{name} must be {' or '.join(map(str, expected.values()))}, got {tuple(tensor.shape)}")
        if name == "key_padding_mask":
            table = tensor.reshape(-1, 1, 1, keys)
        else:
            table = tensor.unflatten(0, (batch, heads)) if tensor.dim() == 3 else tensor[None, None]
        if tensor.dtype == torch.bool:
            visible = _visible(table, added, may_be_padding=name == "key_padding_mask")
            mask = visible if mask is None else mask & visible
        else:
            term = F.pad(table, (0, added))
            bias = term if bias is None else bias + term
    return mask, bias


def _visible(hidden: Tensor, added: int, *, may_be_padding: bool) -> Mask:
    """Return the mask of pairs that are not hidden.

    Padding at the end of the sequences is one of lengths, which spares its keys.
    """
    visible = F.pad(~hidden, (0, added), value=True)
    if may_be_padding and not added and visible.device.type == "cpu":
        lengths = visible[:, 0, 0].sum(-1)
        if bool((visible[:, 0, 0] == (torch.arange(visible.shape[-1]) < lengths[:, None])).all()):
            return Padding(lengths)
    return Table(visible)
