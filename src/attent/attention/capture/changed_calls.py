"""Change heads' contexts in calls of PyTorch's attention functions, and run its fused modules by their plain path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.call import Prepared
from attent.attention.capture.captured_maps import pad_nested, prepare_scaled_dot_product
from attent.attention.capture.interventions import change_context, concerned, running_modules
from attent.errors import ArgumentError

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
# This module uses its submodules' parameters and never calls the submodules.
FUSED_MODULE = nn.MultiheadAttention


def with_heads(
    frame: FrameType, query: Tensor, mask: Tensor | None, is_grouped: bool
) -> tuple[Tensor, Tensor | None, bool]:
    """Return queries (…, H, Tq, D), their mask, and whether heads share key heads."""
    if frame.f_code.co_name == "sdpa_attention_forward" and query.shape[2] > 1 and frame.f_locals.get("q_length") == 1:
        # Hugging Face's decoding passes the heads that share a key head as queries: (B, G, H/G, D)
        query, is_grouped = query.reshape(len(query), -1, 1, query.shape[-1]), True
        if mask is not None and mask.shape[1] > 1:
            mask = mask.reshape(len(mask), -1, 1, mask.shape[-1])
    return query, mask, is_grouped


def change_attention(frame: FrameType, args: Arguments, keywords: Keywords, result: Tensor) -> Tensor:
    """Return the result of `F.scaled_dot_product_attention` with interventions.

    Calls from our own backends are left unchanged: their callers apply the interventions.
    """
    return result if is_own(frame) else _changed_attention(frame, result, *args, **keywords)


def _changed_attention(
    frame: FrameType,
    result: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if result.is_nested:
        if concerned(running_modules(frame)):
            raise ArgumentError(
                "heads cannot be changed if F.scaled_dot_product_attention gets nested tensors: pad them"
            )
        return result
    query, mask, is_grouped = with_heads(frame, query, attn_mask, enable_gqa)
    heads = query.shape[-3] if query.dim() > 3 else 1
    context = result.reshape(-1, heads, query.shape[-2], result.shape[-1])

    def prepare() -> Prepared:
        options = {
            "is_causal": is_causal,
            "scale": scale,
            "is_grouped": is_grouped,
            "value": value,
            "dropout": dropout_p,
        }
        return prepare_scaled_dot_product(query, key, mask, **options)

    changed = change_context(running_modules(frame), context, prepare)
    return result if changed is context else changed.reshape(result.shape)


def is_own(frame: FrameType) -> bool:
    """Return whether the call comes from one of our backends."""
    return frame.f_globals.get("__name__", "").startswith(("attent.attention.", "attent.ops."))


def change_bmm(frame: FrameType, args: Arguments, keywords: Keywords, result: Tensor) -> Tensor:
    """Return the product of weights and values of `nn.MultiheadAttention` with interventions.

    The product that computes the scores is recorded for the second product.
    """
    return change_baddbmm(frame, (None, *args), keywords, result)


def change_baddbmm(frame: FrameType, args: Arguments, keywords: Keywords, result: Tensor) -> Tensor:
    """Do the same as `change_bmm` for masked scores."""
    if frame.f_code is not F.multi_head_attention_forward.__code__:
        return result
    names = frame.f_locals
    if "attn_output_weights" not in names:
        # the keys are no longer available at the second product
        if concerned(running_modules(frame)):
            _score_calls[id(frame)] = partial(_prepare_call, names["num_heads"], names["v"], names["dropout_p"], *args)
        return result
    if (prepare := _score_calls.pop(id(frame), None)) is None:
        return result
    return change_context(running_modules(frame), result.unflatten(0, (-1, names["num_heads"])), prepare).flatten(0, 1)


# calls of `nn.MultiheadAttention` between their two products, by the running function
_score_calls: dict[int, Callable[[], Prepared]] = {}


def _prepare_call(
    heads: int, value: Tensor, dropout: float, mask: Tensor | None, query: Tensor, key: Tensor
) -> Prepared:
    """Prepare a call of scaled queries (B·H, Tq, D), transposed keys (B·H, D, Tk) and values (B·H, Tk, Dv)."""
    bias = None if mask is None else mask.expand(len(query), -1, -1).unflatten(0, (-1, heads))
    query, key, value = (tensor.unflatten(0, (-1, heads)) for tensor in (query, key.mT, value))
    return prepare_scaled_dot_product(query, key, bias, scale=1.0, value=value, dropout=dropout)


def plain_encoder_layer(frame: FrameType) -> Any:
    """Compute the result of the running forward of an `nn.TransformerEncoderLayer` by its plain path.

    `torch._transformer_encoder_layer_fwd` is not called.
    """
    names = _locals(frame, "src_key_padding_mask")
    layer = names["self"]

    def forward(source: Tensor, padding: Tensor | None) -> Tensor:
        return layer.forward(source, names["src_mask"], padding, names["is_causal"])

    return _forward(forward, names["src"], names["src_key_padding_mask"])


def plain_multi_head(frame: FrameType) -> Any:
    """Compute the result of the running forward of an `nn.MultiheadAttention` by its plain path.

    `torch._native_multi_head_attention` is not called.
    """
    names = _locals(frame, "need_weights")
    layer, options = (
        names["self"],
        {name: names[name] for name in ("need_weights", "attn_mask", "average_attn_weights", "is_causal")},
    )
    weights: list[Tensor | None] = []

    def forward(query: Tensor, padding: Tensor | None) -> Tensor:
        context, own_weights = layer.forward(query, query, query, key_padding_mask=padding, **options)
        weights.append(own_weights)
        return context

    return _forward(forward, names["query"], names["key_padding_mask"]), weights[-1]


def _locals(frame: FrameType, name: str) -> dict[str, Any]:
    """Return the local variables of the innermost running function that has this one.

    In PyTorch 2.11, a compiled graph may call in place of the forward, which is still running.
    """
    caller: FrameType | None = frame
    while caller is not None and name not in caller.f_locals:
        caller = caller.f_back
    return frame.f_locals if caller is None else caller.f_locals


def _forward(forward: Callable[[Tensor, Tensor | None], Tensor], features: Tensor, padding: Tensor | None) -> Tensor:
    """Compute a forward of features and their padding mask, True where hidden.

    Nested features are padded and nested again.
    """
    with _without_fast_path():
        if not features.is_nested:
            return forward(features, padding)
        padded, lengths = pad_nested(features)
        hidden = torch.arange(padded.shape[-2], device=padded.device) >= lengths[:, None]
        result = forward(padded, hidden)
    return torch._nested_tensor_from_mask(result, ~hidden, mask_check=False)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]


@contextmanager
def _without_fast_path() -> Iterator[None]:
    was_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_enabled)
