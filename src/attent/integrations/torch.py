"""Run PyTorch's `scaled_dot_product_attention` on a CPU by our kernel, in any model, until PyTorch's own is restored.

On request, the float32 products of linear layers are computed by oneDNN where it is the faster library.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.library import Library, get_kernel
from torch.nn import functional as F

from attent.attention.arguments import prepare
from attent.attention.attend import run
from attent.attention.backends import dense, select
from attent.attention.base import Mask
from attent.attention.call import Prepared
from attent.attention.capture import patching
from attent.attention.capture.watch import is_watched, report
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.maps.lazy_tensor import LazyTensor
from attent.attention.masks.causal import Causal
from attent.attention.masks.padding import Padding
from attent.attention.masks.table import Table
from attent.attention.scores.scaled_dot import ScaledDot
from attent.errors import ArgumentError, ShapeError
from attent.ops import onednn, sdpa
from attent.ops.dense_attention import can_run
from attent.ops.eligibility import is_transformed, without_autocast
from attent.ops.linear import linear

__all__ = ["NAME", "MultiheadAttention", "addmm", "mm", "register", "scaled_dot_product_attention"]

NAME = "attent"
# Below this many multiplications PyTorch's kernel finishes before ours is chosen and called, which takes 80 µs without
# gradients and 270 with: level with AVX2 at 9 million, or at 1 million with dropout, measured with torch 2.13 on an AMD
# EPYC, and sooner where our kernel has wider registers.
MULTIPLICATIONS, MULTIPLICATIONS_WITH_DROPOUT = 2**22, 2**20
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)  # pyright: ignore[reportAttributeAccessIssue]
_AUTOGRAD = torch._C.DispatchKey.AutogradCPU  # pyright: ignore[reportAttributeAccessIssue]


def register(*, linear: bool = False) -> None:
    """Register the implementation "attent" with PyTorch, which activates and restores it.

    While it is active, `scaled_dot_product_attention` on a CPU runs our kernel wherever `attend` would choose it, and
    so do the modules and models that call it. Every other call runs PyTorch's own code, bit for bit: docs/adopting.md
    lists these calls.

    Args:
        linear: whether float32 products of two matrices on a CPU, which linear layers and their gradients consist of,
            go through oneDNN on processors where it is faster than MKL; on others this changes nothing.

    Example:
        >>> attent.integrations.torch.register()
        >>> torch.nn.attention.activate_flash_attention_impl("attent")
        >>> model(inputs)
        >>> torch.nn.attention.restore_flash_attention_impl()
    """
    nn.attention.register_flash_attention_impl(NAME, register_fn=partial(_activate, linear=linear))


@dataclass
class _Handle:
    """The kernels that are registered with PyTorch's dispatcher."""

    library: Library

    def remove(self) -> None:
        """Restore PyTorch's own operators."""
        self.library._destroy()  # pyright: ignore[reportPrivateUsage]


def _activate(*, linear: bool) -> _Handle:
    # fetched while they are still PyTorch's
    for name in ("scaled_dot_product_attention", "addmm", "mm"):
        _pytorch_kernel(name)
    library = Library("aten", "IMPL")
    for key in ("CPU", "AutogradCPU"):
        library.impl("scaled_dot_product_attention", scaled_dot_product_attention, key)
    if linear and onednn.prefers_onednn():
        for name, kernel in (("addmm", addmm), ("mm", mm)):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Warning only once for all operators")
                library.impl(name, kernel, "CPU")
    return _Handle(library)


@cache
def _pytorch_kernel(name: str) -> Any:
    """Return PyTorch's own kernel of an operator on a CPU."""
    return get_kernel(f"aten::{name}", "CPU")


def addmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Compute β b + α L R, as `torch.addmm` does, by oneDNN if it supports b + L R, else by PyTorch's own kernel."""
    if beta == alpha == 1 and onednn.can_serve(left, right, bias):
        return onednn.product(left, right, bias)
    return _pytorch_kernel("addmm").call_boxed(_CPU, bias, left, right, beta=beta, alpha=alpha)


def mm(left: Tensor, right: Tensor) -> Tensor:
    """Compute L R, as `torch.mm` does, by oneDNN if it supports them, else by PyTorch's own kernel."""
    return (
        onednn.product(left, right)
        if onednn.can_serve(left, right)
        else _pytorch_kernel("mm").call_boxed(_CPU, left, right)
    )


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute PyTorch's function of this name by our kernel where `attend` would, else by PyTorch's own code.

    Dropout draws its seed from PyTorch's generator.
    """
    is_pytorchs = _is_short(query, key, dropout_p) or _is_called_by_attend(sys._getframe(1))
    if not is_pytorchs and _can_serve(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa):
        prepared = _prepare(query, key, value, attn_mask, dropout_p, is_causal, scale)
        call = prepared.call
        if dense.unsupported(call) is None and select.reason_to_skip("dense", call) is None:
            if dropout_p:
                call = replace(call, seed=int(torch.randint(2**31 - 1, ())))
            with without_autocast(call.device):
                return call.restore_axes(dense.run(call, prepared.query, prepared.key, prepared.value))
    return _pytorch_kernel("scaled_dot_product_attention").call_boxed(
        _CPU, query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _is_short(query: Tensor, key: Tensor, dropout: float) -> bool:
    """Return whether PyTorch is faster on any processor, or a tensor has fewer than two axes.

    This is checked first because it is cheap.
    """
    if query.dim() < 2 or key.dim() < 2 or query.shape[-2] == 1:
        # `attend` leaves single queries to PyTorch, and a step of decoding is too short for its checks
        return True
    return query.numel() * key.shape[-2] < (MULTIPLICATIONS_WITH_DROPOUT if dropout else MULTIPLICATIONS)


def _is_called_by_attend(frame: FrameType | None) -> bool:
    """Return whether the caller is `attend`, which has already chosen PyTorch."""
    if frame is not None and frame.f_globals is vars(patching):
        frame = frame.f_back
    return frame is not None and frame.f_globals is vars(sdpa)


def _can_serve(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, is_causal: bool, has_groups: bool
) -> bool:
    """Return whether a call means the same to `attend` as to PyTorch; it does not if PyTorch broadcasts or raises."""
    inputs = [query, key, value] if mask is None else [query, key, value, mask]
    if not all(type(tensor) in (Tensor, nn.Parameter) and tensor.numel() for tensor in inputs):
        return False
    if not can_run(query, key, value) or not query.dtype == key.dtype == value.dtype:
        return False
    if not torch.backends.cuda.flash_sdp_enabled() or not 0.0 <= dropout < 1.0:
        return False
    if torch.is_grad_enabled() and torch._C._dispatch_tls_is_dispatch_key_excluded(_AUTOGRAD):  # pyright: ignore[reportAttributeAccessIssue]
        # the caller's own gradients are being recorded above
        return False
    return _fit_together(query.shape, key.shape, value.shape, has_groups) and (
        mask is None or (not is_causal and _is_readable_mask(mask, query, key.shape[-2]))
    )


def _fit_together(query: Sequence[int], key: Sequence[int], value: Sequence[int], has_groups: bool) -> bool:
    """Return whether (B, H, Tq, D), (B, G, Tk, D) and (B, G, Tk, Dv), or fewer axes, agree without broadcasting."""
    if not len(query) == len(key) == len(value) or not 2 <= len(query) <= 4:
        return False
    if key[:-1] != value[:-1] or query[-1] != key[-1] or query[:-3] != key[:-3]:
        return False
    is_grouped = has_groups and len(query) == 4 and query[1] % key[1] == 0
    return is_grouped or query[-3:-2] == key[-3:-2]


def _is_readable_mask(mask: Tensor, query: Tensor, keys: int) -> bool:
    """Return whether each axis of a mask is as long as that of the scores, or one."""
    if mask.device.type != "cpu" or mask.dtype not in (torch.bool, torch.float32, query.dtype):
        return False
    scores = (*query.shape[:-1], keys)
    if not 2 <= mask.dim() <= len(scores):
        return False
    return all(size in (1, full) for size, full in zip(mask.shape, scores[-mask.dim() :], strict=True))


def _prepare(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, is_causal: bool, scale: float | None
) -> Prepared:
    """Return the call in the form of `attend`: a causal mask starts with the first key."""
    if mask is not None and mask.dim() == 3:
        # (B, Tq, Tk) of three axes, (H, Tq, Tk) of four
        mask = mask[:, None] if query.dim() == 3 else mask[None]
    is_boolean = mask is not None and mask.dtype == torch.bool
    return prepare(
        query,
        key,
        value,
        score="scaled_dot" if scale is None else ScaledDot(scale),
        mask="causal" if is_causal else mask if is_boolean else None,
        bias=None if is_boolean else mask,
        query_start=0 if is_causal else None,
        dropout=dropout,
        seed=0 if dropout else None,
    )


class MultiheadAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` with the same arguments, parameters, masks and results, by `attent.attend`.

    Weights are a `LazyTensor`: asking for them, as `need_weights=True` does by default, costs nothing until their
    numbers are read.

    Differences: a query that may see no key gets zeros, while PyTorch's module gives NaN; the weights are those before
    dropout; the same seed drops different weights than in PyTorch. Compiled graphs, transforms of torch.func, traces
    and nested tensors run PyTorch's own code.

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
        """Attend, with PyTorch's signature.

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
            The result, in the query's layout, and the weights, (B, Tq, Tk) or (B, H, Tq, Tk), without B if the query
            has none; None without `need_weights`.

        Raises:
            ShapeError: the tensors do not fit together.
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
        # PyTorch uses the hint where it uses its fused kernel
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
        """Return the call for queries, keys and values with heads, (B, H, T, D)."""
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
        """Return features (T, E), (T, B, E) or, batch first, (B, T, E) as (B, H, T, D)."""
        heads = features.unflatten(-1, (self.num_heads, self.head_dim))
        if features.dim() == 2:
            return heads.transpose(0, 1)[None]
        return heads.transpose(1, 2) if self.batch_first else heads.permute(1, 2, 0, 3)

    def _with_added_keys(self, features: Tensor, bias: Tensor | None) -> Tensor:
        """Return keys or values (B, H, Tk, D) with `bias_k` or `bias_v`, and with zeros, if the module adds them."""
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
    """Return the mask and the bias of (B, H, Tq, Tk) scores that are equivalent to PyTorch's two masks.

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

    Padding at the end of the sequences becomes a mask of lengths, which skips its keys.
    """
    visible = F.pad(~hidden, (0, added), value=True)
    if may_be_padding and not added and visible.device.type == "cpu":
        lengths = visible[:, 0, 0].sum(-1)
        if bool((visible[:, 0, 0] == (torch.arange(visible.shape[-1]) < lengths[:, None])).all()):
            return Padding(lengths)
    return Table(visible)
