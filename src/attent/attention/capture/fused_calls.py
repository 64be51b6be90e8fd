"""PyTorch's fused paths: queries and keys are made inside, and made again when the map is looked at."""

from __future__ import annotations

import itertools
from types import FrameType
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.call import Prepared
from attent.attention.capture.deferred_map import Recorded, scaled_dot_product
from attent.attention.capture.nested_tensors import opened, within
from attent.attention.capture.snapshot import Kept, hold, keep
from attent.attention.capture.torch_calls import Arguments, Heard, Named, first_argument, running
from attent.attention.maps.attention_map import AttentionMap


class Projection(NamedTuple):
    """How queries and keys are made of features: a norm, if it comes first, and a product."""

    heads: int
    weight: Tensor  # (3·E, E), for queries, keys and values
    bias: Tensor  # (3·E,)
    norm: tuple[Tensor, Tensor, float] | None = None  # weight, bias, epsilon


def encoder_layer(frame: FrameType, args: Arguments, named: Named) -> Heard | None:
    """`nn.TransformerEncoderLayer`, whose path leaves its attention module out; the map is put down to that module still."""
    modules = running(frame)
    layer = next(modules, None)
    if not isinstance(layer, nn.TransformerEncoderLayer):
        return None
    return Heard(itertools.chain((layer.self_attn, layer), modules), lambda: _encoder_layer(_tokens(frame), *args, **named))


def _tokens(frame: FrameType | None) -> int | None:
    """How many tokens the encoder was given, before it left the padding out."""
    while frame is not None:
        if isinstance(first_argument(frame), nn.TransformerEncoder):
            source = frame.f_locals["src"]
            return None if source.is_nested else source.shape[1]
        frame = frame.f_back
    return None


def _encoder_layer(tokens: int | None, source: Tensor, width: int, heads: int, weight: Tensor, bias: Tensor, *others: Any) -> AttentionMap:
    _, _, _, norm_first, epsilon, norm_weight, norm_bias, *_, mask, mask_type = others
    norm = (norm_weight, norm_bias, epsilon) if norm_first else None
    return _projected(Projection(heads, weight, bias, norm), source, source, mask, mask_type, tokens)


def multi_head(frame: FrameType, args: Arguments, named: Named) -> Heard | None:
    """`nn.MultiheadAttention` by itself."""
    return Heard(running(frame), lambda: _multi_head(*args, **named))


def _multi_head(
    query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, weight: Tensor, bias: Tensor, *others: Any
) -> AttentionMap:
    _, _, mask, _, _, mask_type = others
    return _projected(Projection(heads, weight, bias), query, key, mask, mask_type)


def _projected(
    projection: Projection, query: Tensor, key: Tensor, mask: Tensor | None, mask_type: int | None, tokens: int | None = None
) -> AttentionMap:
    ours = keep(query)
    theirs = ours if key is query else keep(key)
    hidden = None if mask is None else keep(mask)
    weight, bias = hold(projection.weight), hold(projection.bias)
    norm = None if projection.norm is None else (hold(projection.norm[0]), hold(projection.norm[1]))

    def side(kept: Kept, which: int) -> tuple[Tensor, Tensor | None]:
        """Queries (which = 0) or keys (1), and the lengths of the sequences, if they were without padding."""
        features, lengths = opened(kept.seen(), tokens) if kept.tensor.is_nested else (kept.seen(), None)
        if norm is not None and projection.norm is not None:
            features = F.layer_norm(features, features.shape[-1:], norm[0].seen(), norm[1].seen(), projection.norm[2])
        features = F.linear(features, weight.seen().chunk(3)[which], bias.seen().chunk(3)[which])
        return features.unflatten(-1, (projection.heads, -1)).transpose(1, 2), lengths  # (B, H, T, D)

    def prepared() -> Prepared:
        (queries, rows), (keys, lengths) = side(ours, 0), side(theirs, 1)
        if rows is not None and lengths is not None:
            return scaled_dot_product(queries, keys, within(rows, queries.shape[2], lengths))
        allowed = None if hidden is None else _allowed(hidden.seen(), mask_type)
        return scaled_dot_product(queries, keys, allowed, bare=True)

    return Recorded(prepared)


def _allowed(mask: Tensor, mask_type: int | None) -> Tensor:
    """PyTorch's mask, in which what is not zero hides, as one of ours: (Tq, Tk), or (B, Tk) for padding (mask type 1)."""
    allowed = mask == 0
    return allowed[:, None, None] if mask_type == 1 else allowed
