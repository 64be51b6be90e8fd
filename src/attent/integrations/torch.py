"""Run PyTorch's `scaled_dot_product_attention` on a CPU by our kernel, in any model, until PyTorch's own is restored.

On request, the float32 products of linear layers are computed by oneDNN where it is the faster library.
"""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.library import Library, get_kernel

from attent.attention.arguments import prepare
from attent.attention.backends import dense, select
from attent.attention.call import Prepared
from attent.attention.capture import patching
from attent.attention.scores.scaled_dot import ScaledDot
from attent.integrations.varlen import flash_attn_varlen_func, varlen_attn
from attent.ops import onednn, sdpa
from attent.ops.dense_attention import can_run
from attent.ops.eligibility import without_autocast

__all__ = ["flash_attn_varlen_func", "register", "scaled_dot_product_attention", "varlen_attn"]

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


def _activate(*, linear: bool) -> Any:
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
    return SimpleNamespace(remove=library._destroy)  # pyright: ignore[reportPrivateUsage]


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
    # `attend` leaves single queries to PyTorch, and a step of decoding is too short for its checks
    return (
        query.dim() < 2
        or key.dim() < 2
        or query.shape[-2] == 1
        or query.numel() * key.shape[-2] < (MULTIPLICATIONS_WITH_DROPOUT if dropout else MULTIPLICATIONS)
    )


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
    if torch.is_grad_enabled() and torch._C._dispatch_tls_is_dispatch_key_excluded(_AUTOGRAD):  # pyright: ignore[reportAttributeAccessIssue]
        # the caller's own gradients are being recorded above
        return False
    return (
        all(type(tensor) in (Tensor, nn.Parameter) and tensor.numel() for tensor in inputs)
        and can_run(query, key, value)
        and query.dtype == key.dtype == value.dtype
        and torch.backends.cuda.flash_sdp_enabled()
        and 0.0 <= dropout < 1.0
        and _fit_together(query.shape, key.shape, value.shape, has_groups)
        and (mask is None or (not is_causal and _is_readable_mask(mask, query, key.shape[-2])))
    )


def _fit_together(query: Sequence[int], key: Sequence[int], value: Sequence[int], has_groups: bool) -> bool:
    """Return whether (B, H, Tq, D), (B, G, Tk, D) and (B, G, Tk, Dv), or fewer axes, agree without broadcasting."""
    if not len(query) == len(key) == len(value) or not 2 <= len(query) <= 4:
        return False
    is_grouped = has_groups and len(query) == 4 and query[1] % key[1] == 0
    have_same_sizes = key[:-1] == value[:-1] and query[-1] == key[-1] and query[:-3] == key[:-3]
    return have_same_sizes and (is_grouped or query[-3:-2] == key[-3:-2])


def _is_readable_mask(mask: Tensor, query: Tensor, keys: int) -> bool:
    """Return whether each axis of a mask is as long as that of the scores, or one."""
    scores = (*query.shape[:-1], keys)
    return (
        mask.device.type == "cpu"
        and mask.dtype in (torch.bool, torch.float32, query.dtype)
        and 2 <= mask.dim() <= len(scores)
        and all(size in (1, full) for size, full in zip(mask.shape, scores[-mask.dim() :], strict=True))
    )


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
