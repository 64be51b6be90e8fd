"""A Transformer's encoder, and a step of its decoder, each in one call of the extension.

There every row goes through all layers by itself and without padding, so that its numbers depend on nothing beside it. In a search
on a CPU this takes the place of the modules: dot products, softmax, float32, nobody watching.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.base import DotScore
from attent.attention.capture.watch import is_watched
from attent.attention.multihead import MultiHeadAttention
from attent.attention.normalizers.softmax import Softmax
from attent.attention.positions.rotary import Rotary
from attent.attention.scores.dot import Dot
from attent.attention.scores.scaled_dot import ScaledDot
from attent.layers.embeddings import TokenEmbedding
from attent.models.transformer_layers import Decoder, DecoderLayer, Encoder, EncoderLayer
from attent.ops import native, packed_linear

# Positions whose angles are computed at a time.
TURNS = 16


class Start(NamedTuple):
    """What tokens begin as: rows of a table times its factor, plus rows for positions, (T, E), where there are such."""

    tokens: TokenEmbedding
    positions: Tensor | None


class Stack(NamedTuple):
    """A stack of layers as the extension reads it."""

    weights: Tensor
    sizes: tuple[int, ...]
    numbers: tuple[float, float]
    turned: Rotary | None


def serves(stack: Encoder | Decoder) -> bool:
    """Whether the extension computes the whole stack."""
    if stack.training or is_watched() or not (_silent(stack) and all(map(_whole, stack.layers))):
        return False
    return packed_linear.possible(stack.layers[0].feed_forward.widen.weight) and all(map(plain, _attentions(stack)))


def plain(attention: MultiHeadAttention) -> bool:
    """Whether it is dot products under softmax, and turned at most."""
    position = attention.position
    turned = position is None or (type(position) is Rotary and not position.halves)
    dots = type(attention.score) in (Dot, ScaledDot) and type(attention.normaliser) is Softmax and attention.soft_cap is None
    return turned and dots and isinstance(attention.output, nn.Linear) and attention.key_width == attention.value_width


def _whole(layer: EncoderLayer | DecoderLayer) -> bool:
    """Whether nothing in a layer was exchanged, and nobody hears of what goes through it."""
    inside = [layer.feed_forward.widen, layer.feed_forward.narrow]
    for attention in _attentions_of(layer):
        inside += [attention, attention.query_projection, attention.key_projection, attention.value_projection, attention.output]
    kinds = (nn.Linear, MultiHeadAttention)
    return _silent(layer) and _silent(layer.feed_forward) and all(type(one) in kinds and _silent(one) for one in inside)


def _silent(module: nn.Module) -> bool:
    return not (module._forward_hooks or module._forward_pre_hooks)


def _attentions(stack: Encoder | Decoder) -> Iterator[MultiHeadAttention]:
    for layer in stack.layers:
        yield from _attentions_of(layer)


def _attentions_of(layer: EncoderLayer | DecoderLayer) -> Sequence[MultiHeadAttention]:
    return (layer.self_attention, layer.cross_attention) if isinstance(layer, DecoderLayer) else (layer.self_attention,)


def stack_of(stack: Encoder | Decoder) -> Stack:
    """What a stack has learnt, and its sizes."""
    layer, own, feed_forward = stack.layers[0], stack.layers[0].self_attention, stack.layers[0].feed_forward
    norm = (layer.around_self if isinstance(layer, DecoderLayer) else layer.around_attention).norm
    heads = own.heads, own.key_value_heads, own.key_width
    kinds = isinstance(stack.norm, nn.LayerNorm), feed_forward.activation is F.gelu
    sizes = feed_forward.widen.in_features, *heads, feed_forward.widen.out_features, len(stack.layers), *kinds
    return Stack(packed_linear.laid_out(stack, lambda: _pieces(stack)), sizes, (scale(own), norm.eps), rotary(own))


def _pieces(stack: Encoder | Decoder) -> Iterator[Tensor]:
    for layer in stack.layers:
        own = layer.self_attention
        yield from _norm((layer.around_self if isinstance(layer, DecoderLayer) else layer.around_attention).norm)
        yield from packed_linear.panels(*joined(own))
        yield from _linear(own.output)
        if isinstance(layer, DecoderLayer):
            yield from _norm(layer.around_cross.norm)
            yield from _linear(layer.cross_attention.query_projection)
            yield from _linear(layer.cross_attention.output)
        yield from _norm(layer.around_feed_forward.norm)
        yield from _linear(layer.feed_forward.widen)
        yield from _linear(layer.feed_forward.narrow)
    if isinstance(stack.norm, nn.LayerNorm):
        yield from _norm(stack.norm)
    # `remember` reads them from the end
    for layer in stack.layers:
        if isinstance(layer, DecoderLayer):
            memory = layer.cross_attention
            yield from packed_linear.panels(*_beside([memory.key_projection, memory.value_projection], [0, 0]))


def _norm(norm: nn.LayerNorm) -> Iterator[Tensor]:
    for numbers in (norm.weight, norm.bias):
        yield packed_linear.vector(numbers, norm.normalized_shape[0])


def _linear(layer: nn.Module | None) -> list[Tensor]:
    linear = cast(nn.Linear, layer)
    return packed_linear.panels(linear.weight, linear.bias)


def joined(attention: MultiHeadAttention) -> tuple[Tensor, Tensor | None]:
    """The weight and the bias of all three projections as one."""
    projections = (attention.query_projection, attention.key_projection, attention.value_projection)
    turned = 0 if attention.position is None else attention.key_width
    return _beside(projections, [turned, turned, 0])


def _beside(projections: Sequence[nn.Linear], turned: Sequence[int]) -> tuple[Tensor, Tensor | None]:
    """Projections as one; of those that are turned, the heads' width, each head's rows halved."""

    def together(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat([_halved(part, width) if width else part for part, width in zip(parts, turned, strict=True)])

    biases = [each.bias for each in projections]
    return together([each.weight for each in projections]), None if biases[0] is None else together(biases)


def _halved(rows: Tensor, width: int) -> Tensor:
    """Each head's rows with the first of every pair before all of the second; a product of two heads does not change."""
    return rows.unflatten(0, (-1, width // 2, 2)).transpose(1, 2).flatten(0, 2)


def rotary(attention: MultiHeadAttention) -> Rotary | None:
    """What turns its queries and keys."""
    return cast(Rotary | None, attention.position)


def scale(attention: MultiHeadAttention) -> float:
    """The factor on q·k."""
    return cast(DotScore, attention.score).scale(attention.key_width)


def angles(turned: Rotary, width: int, position: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine, (D/2,) each, of what turns pairs of features at a position."""
    cosine, sine = _angles(turned.base, width, position // TURNS * TURNS, TURNS, device)
    return cosine[position % TURNS], sine[position % TURNS]


@lru_cache(maxsize=64)
def _angles(base: float, width: int, start: int, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The same of some positions, (T, D/2)."""
    ones = torch.tensor([1.0, 0.0], device=device).repeat(width // 2).expand(1, 1, count, -1)
    turned = Rotary(base).turn(ones, torch.arange(start, start + count, device=device)[None])
    cosine, sine = turned[0, 0].unflatten(-1, (-1, 2)).permute(2, 0, 1).contiguous().unbind()
    return cosine, sine


def encode(encoder: Encoder, start: Start, source: Tensor, lengths: Tensor) -> Tensor:
    """The memory's features, (B, Tk, E), of a right-padded source (B, Tk) of which lengths (B,) are real; zeros behind them."""
    stack, (batch, length) = stack_of(encoder), source.shape
    width, _, _, head, *_ = stack.sizes
    memory = torch.zeros(batch, length, width)
    count = packed_linear.PANEL * -(-length // packed_linear.PANEL)
    turns = (None, None) if stack.turned is None else _angles(stack.turned.base, head, 0, count, source.device)
    given = (_exact(source), start.tokens.weight, start.positions, *turns, stack.weights, _exact(lengths), memory)
    native.run("attent_encoder", given, batch, length, *stack.sizes, start.tokens.scale, *stack.numbers)
    return memory


def _exact(numbers: Tensor) -> Tensor:
    """As the extension reads whole numbers."""
    return numbers.long().contiguous()


def remember(stack: Stack, features: Tensor) -> Tensor:
    """Every layer's keys and values of the memory (B, Tk, E): (L, B, Tk, 2·G·D)."""
    features = features.contiguous()
    width, _, groups, head, _, layers, *_ = stack.sizes
    columns = 2 * groups * head
    each = (width + 1) * packed_linear.padded(columns)
    every = stack.weights[len(stack.weights) - layers * each :].view(layers, each)
    source = features.new_empty(layers, *features.shape[:-1], columns)
    for one, to in zip(every, source, strict=True):
        packed_linear.product(one, features, to)
    return source


def step(
    stack: Stack,
    start: Start,
    tokens: Tensor,
    *,
    written: Tensor,
    rows: Tensor,
    source: Tensor,
    origin: Tensor,
    lengths: Tensor,
) -> Tensor:
    """Features (B, E) of one further token (B,).

    Args:
        stack: the decoder.
        start: what the tokens begin as.
        tokens: the tokens.
        written: every layer's keys and values, (L, C, S, 2·G·D), where those of this step are put too.
        rows: which of the S rows holds each, (B, length + 1); its own in the last place.
        source: every layer's keys and values of the memory, (L, S, Tk, 2·G·D).
        origin: which of these each row reads, (B, 1).
        lengths: how many of its keys are real, (B,).
    """
    batch, length = rows.shape
    width, _, _, head, *_ = stack.sizes
    features = torch.empty(batch, width)
    turns = (None, None) if stack.turned is None else angles(stack.turned, head, length - 1, tokens.device)
    given = (_exact(tokens), start.tokens.weight, start.positions, *turns, stack.weights, written, rows, origin, lengths, source, features)
    layer, place, row, _ = written.stride()
    places = (batch, length - 1, rows.stride(0), layer, row, place, source.shape[1], source.shape[2])
    native.run("attent_step", given, *places, *stack.sizes, start.tokens.scale, *stack.numbers)
    return features
