"""What each door of PyTorch's is called with, made into the map of that call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.call import Prepared
from attent.attention.capture.deferred_map import Recorded, scaled_dot_product
from attent.attention.capture.nested_tensors import opened, within
from attent.attention.capture.snapshot import Kept, keep
from attent.attention.maps.attention_map import AttentionMap

Arguments = tuple[Any, ...]
Named = dict[str, Any]


class Heard(NamedTuple):
    """One call: the modules that were running, the innermost first, and its map, not yet made."""

    modules: Iterator[nn.Module]
    map: Callable[[], AttentionMap]


def running(frame: FrameType | None) -> Iterator[nn.Module]:
    """The modules whose methods are running, the innermost first."""
    while frame is not None:
        first = first_argument(frame)
        if isinstance(first, nn.Module):
            yield first
        frame = frame.f_back


def first_argument(frame: FrameType) -> object:
    """What a running function was called with first: the module, if it is a module's method."""
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None


def scaled_dot_product_attention(frame: FrameType, args: Arguments, named: Named) -> Heard | None:
    """`F.scaled_dot_product_attention`; our own kernels are left out, since their callers report."""
    if frame.f_globals.get("__name__", "").startswith(("attent.attention.", "attent.ops.")):
        return None
    return Heard(running(frame), lambda: _scaled_dot_product(frame, *args, **named))


def _scaled_dot_product(
    frame: FrameType,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> AttentionMap:
    if frame.f_code.co_name == "sdpa_attention_forward" and query.shape[2] > 1 and frame.f_locals.get("q_length") == 1:
        # Hugging Face's decoding hands over the heads that share a key head as if they were queries: (B, G, H/G, D)
        query, enable_gqa = query.reshape(len(query), -1, 1, query.shape[-1]), True
        if attn_mask is not None and attn_mask.shape[1] > 1:
            attn_mask = attn_mask.reshape(len(attn_mask), -1, 1, attn_mask.shape[-1])
    # the originals, with their graph, must not be held
    return Recorded(_attention, keep(query), keep(key), None if attn_mask is None else keep(attn_mask), is_causal, scale, enable_gqa)


def _attention(query: Kept, key: Kept, mask: Kept | None, causal: bool, scale: float | None, grouped: bool) -> Prepared:
    if query.tensor.is_nested:
        (queries, rows), (keys, lengths) = opened(query.seen()), opened(key.seen())
        return scaled_dot_product(queries, keys, within(rows, queries.shape[-2], lengths), causal=causal, scale=scale)
    seen = None if mask is None else mask.seen()
    return scaled_dot_product(query.seen(), key.seen(), seen, causal=causal, scale=scale, grouped=grouped)


def product(frame: FrameType, args: Arguments, named: Named) -> Heard | None:
    """`torch.bmm`, of which only the scores of `nn.MultiheadAttention` are meant, when it returns its weights."""
    return Heard(running(frame), lambda: _scores(frame.f_locals["num_heads"], None, *args, **named)) if _of_scores(frame) else None


def added_product(frame: FrameType, args: Arguments, named: Named) -> Heard | None:
    """`torch.baddbmm`, the same with a mask."""
    return Heard(running(frame), lambda: _scores(frame.f_locals["num_heads"], *args, **named)) if _of_scores(frame) else None


def _of_scores(frame: FrameType) -> bool:
    # the second product in there is weights · values
    return frame.f_code is F.multi_head_attention_forward.__code__ and "attn_output_weights" not in frame.f_locals


def _scores(heads: int, mask: Tensor | None, query: Tensor, key: Tensor) -> AttentionMap:
    """Queries (B·H, Tq, D), scaled before, and transposed keys (B·H, D, Tk)."""
    return Recorded(_product, heads, keep(query), keep(key), None if mask is None else keep(mask))


def _product(heads: int, query: Kept, key: Kept, mask: Kept | None) -> Prepared:
    bias = None if mask is None else mask.seen().expand(len(query.tensor), -1, -1).unflatten(0, (-1, heads))
    queries, keys = (side.unflatten(0, (-1, heads)) for side in (query.seen(), key.seen().mT))
    return scaled_dot_product(queries, keys, bias, scale=1.0, bare=True)
