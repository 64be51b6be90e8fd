"""Conversion of a Transformer's modules to packed weights, for `attent.ops.transformer` on a CPU.

The packed weights replace the modules in inference mode for dot products, softmax and float32, as long as no head is
watched or changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.base import DotScore
from attent.attention.capture.interventions import is_intervened
from attent.attention.capture.watch import is_watched
from attent.attention.multihead import MultiHeadAttention
from attent.attention.normalizers.softmax import Softmax
from attent.attention.positions.learned import Learned
from attent.attention.positions.rotary import Rotary
from attent.attention.scores.dot import Dot
from attent.attention.scores.scaled_dot import ScaledDot
from attent.layers.dropout import Dropout
from attent.layers.embeddings import TokenEmbedding
from attent.layers.feed_forward import FeedForward
from attent.layers.residual import Residual
from attent.layers.ssru import SSRU
from attent.models.model import Memory, Model
from attent.models.transformer_layers import (
    CausalDecoder,
    CausalLayer,
    Decoder,
    DecoderLayer,
    Embedding,
    Encoder,
    EncoderLayer,
)
from attent.ops import packed_linear, transformer
from attent.ops.packed_linear import ModuleTree, Piece, WeightType
from attent.ops.search import PackedDecoder
from attent.ops.transformer import PRE, RECURRENT, IncrementalState, PackedEmbedding, PackedStack
from attent.types import Features, Lengths

S = TypeVar("S")

# Modules that the library implements.
PACKED = {
    *(Encoder, EncoderLayer, Decoder, DecoderLayer, CausalDecoder, CausalLayer, nn.ModuleList),
    *(Residual, nn.LayerNorm, Dropout, FeedForward, nn.Linear),
    *(MultiHeadAttention, Dot, ScaledDot, Rotary, SSRU),
}
# Activations in the order in which the library counts them.
ACTIVATIONS = F.relu, F.gelu, F.silu
# Positions for which rotary angles are computed at a time.
ANGLE_BLOCK = 16

Stack = Encoder | Decoder | CausalDecoder


def has_packed_form(stack: Stack) -> bool:
    """Return whether the packed stack computes the same as the modules: none was replaced, and none has hooks."""
    if stack.training or is_watched():
        return False
    tree = packed_linear.module_tree(stack)
    parts = tree.derive(_packed_parts, stack, tree)
    is_softmax = all(
        type(attention.normalizer) is Softmax and attention.soft_cap is None for attention in parts.attentions
    )
    is_served = all(rotary.interleaved for rotary in parts.positions) and all(
        layer.activation in ACTIVATIONS for layer in parts.feed_forwards
    )
    return parts.are_packed and not tree.has_hooks and is_softmax and is_served and not is_intervened(parts.attentions)


class _Parts(NamedTuple):
    are_packed: bool  # as far as it depends on the modules
    attentions: list[MultiHeadAttention]
    positions: list[Rotary]
    feed_forwards: list[FeedForward]


def _packed_parts(stack: Stack, tree: ModuleTree) -> _Parts:
    modules = [module for module in tree.modules if module is not stack.norm]
    attentions = [module for module in modules if isinstance(module, MultiHeadAttention)]
    return _Parts(
        all(type(module) in PACKED for module in (stack, *modules)) and all(map(_is_plain, attentions)),
        attentions,
        [module for module in modules if isinstance(module, Rotary)],
        [module for module in modules if isinstance(module, FeedForward)],
    )


def _is_plain(attention: MultiHeadAttention) -> bool:
    """Return whether an attention has an output projection, and values as wide as keys."""
    return isinstance(attention.output, nn.Linear) and attention.key_width == attention.value_width


def pack(stack: Stack) -> PackedStack:
    """Return the packed weights of a stack; they are cached until a parameter changes."""
    layer, feed_forward = stack.layers[0], stack.layers[0].feed_forward
    is_recurrent = isinstance(layer.self_attention, SSRU)
    attention = cast(MultiHeadAttention, cast(Any, layer).cross_attention if is_recurrent else layer.self_attention)
    heads = attention.heads, attention.key_value_heads, attention.key_width
    options = PRE * isinstance(stack.norm, nn.LayerNorm) + RECURRENT * is_recurrent
    flags = options, ACTIVATIONS.index(feed_forward.activation)
    sizes = (
        feed_forward.widen.in_features,
        *heads,
        feed_forward.widen.out_features,
        len(stack.layers),
        *flags,
        packed_linear.native_kind(packed_linear.kind_of(stack)),
    )
    scale = cast(DotScore, attention.score).scale(attention.key_width)
    return PackedStack(
        packed_linear.packed_weights(stack, partial(_pieces, stack)), sizes, (scale, _first_norm(layer).eps)
    )


def parts(model: Model) -> Mapping[str, tuple[nn.Module, Callable[[], Iterable[Piece]]]]:
    """Return the parts of a Transformer that have packed weights, by name, each with its pieces.

    The result is empty if the model has no packed form.
    """
    stacks = {
        name: stack for name, stack in model.named_children() if isinstance(stack, Encoder | Decoder | CausalDecoder)
    }
    if not stacks or not all(map(has_packed_form, stacks.values())):
        return {}
    of_stacks = {name: (stack, partial(_pieces, stack)) for name, stack in stacks.items()}
    tables = {
        name: part
        for name, part in model.named_modules()
        if isinstance(part, TokenEmbedding) and not packed_linear.layer_of(part)
    }
    columns = {
        name: (part, partial(packed_linear.columns_of, part))
        for name, part in (("to_logits", model.to_logits), *tables.items())
    }
    return of_stacks | columns


def _first_norm(layer: EncoderLayer | DecoderLayer | CausalLayer) -> nn.LayerNorm:
    return (layer.around_self if isinstance(layer, DecoderLayer) else layer.around_attention).norm


def _pieces(stack: Stack) -> Iterator[Piece]:
    kind = packed_linear.kind_of(stack)
    for layer in stack.layers:
        yield from _norm(_first_norm(layer))
        yield from _past(layer.self_attention, kind)
        if isinstance(layer, DecoderLayer):
            yield from _norm(layer.around_cross.norm)
            yield _linear(layer.cross_attention.query_projection, kind)
            yield _linear(layer.cross_attention.output, kind)
        yield from _norm(layer.around_feed_forward.norm)
        yield _linear(layer.feed_forward.widen, kind)
        yield _linear(layer.feed_forward.narrow, kind)
    if isinstance(stack.norm, nn.LayerNorm):
        yield from _norm(stack.norm)
    # `memory_keys_values` reads these from the end.
    for layer in stack.layers:
        if isinstance(layer, DecoderLayer):
            projections = layer.cross_attention.key_projection, layer.cross_attention.value_projection
            yield _projections(projections, [0, 0], kind)


def _past(module: MultiHeadAttention | SSRU, kind: WeightType) -> Iterator[Piece]:
    if isinstance(module, SSRU):
        biases = [module.forget.bias, torch.zeros_like(module.forget.bias)]
        layers = module.forget, module.value
        yield packed_linear.panels([layer.weight for layer in layers], biases, kind, packed_linear.factors(layers))
        return
    rotary_width = 0 if module.position is None else module.key_width
    projections = module.query_projection, module.key_projection, module.value_projection
    yield _projections(projections, [rotary_width, rotary_width, 0], kind)
    yield _linear(module.output, kind)


def _norm(norm: nn.LayerNorm) -> Iterator[Piece]:
    for parameter in (norm.weight, norm.bias):
        yield packed_linear.vector(parameter, norm.normalized_shape[0])


def _linear(layer: nn.Module | None, kind: WeightType) -> Piece:
    return _projections([cast(nn.Linear, layer)], [0], kind)


def _projections(layers: Sequence[nn.Linear], rotary_widths: Sequence[int], kind: WeightType) -> Piece:
    """Return several layers as one piece; a rotary width is the head width of a rotated projection, else 0."""

    def reordered(rows: Tensor | None, width: int) -> Tensor | None:
        return _split_pairs(rows, width) if rows is not None and width else rows

    biases = [reordered(layer.bias, width) for layer, width in zip(layers, rotary_widths, strict=True)]
    weights = [cast(Tensor, reordered(layer.weight, width)) for layer, width in zip(layers, rotary_widths, strict=True)]
    return packed_linear.panels(weights, biases, kind, packed_linear.factors(layers))


def _split_pairs(rows: Tensor, width: int) -> Tensor:
    """Reorder each head's rows so that the first rows of all pairs precede the second ones; q·k does not change."""
    return rows.unflatten(0, (-1, width // 2, 2)).transpose(1, 2).flatten(0, 2)


def _packed_embedding(
    embedding: Embedding, attention: MultiHeadAttention | SSRU, start: int, count: int, angle_count: int
) -> PackedEmbedding:
    tokens, positions = embedding.tokens, embedding.position_features(start, count)
    table = packed_linear.table(tokens)
    if attention.position is None:
        return PackedEmbedding(table, tokens.scale, positions, (None, None))
    base, first = cast(Rotary, attention.position).base, start // ANGLE_BLOCK * ANGLE_BLOCK
    key_width = cast(MultiHeadAttention, attention).key_width
    cosine, sine = _cosine_and_sine(base, key_width, first, angle_count, tokens.weight.device)
    return PackedEmbedding(table, tokens.scale, positions, (cosine[start - first :], sine[start - first :]))


@lru_cache(maxsize=64)
def _cosine_and_sine(base: float, width: int, start: int, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the cosine and sine of rotary positions from `start` on, each (T, D/2)."""
    ones = torch.tensor([1.0, 0.0], device=device).repeat(width // 2).expand(1, 1, count, -1)
    rotated = Rotary(base).rotate(ones, torch.arange(start, start + count, device=device)[None])
    cosine, sine = rotated[0, 0].unflatten(-1, (-1, 2)).permute(2, 0, 1).contiguous().unbind()
    return cosine, sine


def encode(encoder: Encoder, embedding: Embedding, source: Tensor, lengths: Lengths) -> Features:
    """Return the memory's features (B, Tk, E) for a right-padded source (B, Tk) with real lengths (B,).

    The library embeds tokens only, so vectors (B, Tk, D) are encoded by the modules.
    """

    def reference() -> Features:
        return encoder(embedding(source), lengths).features

    def operands() -> tuple[PackedStack, PackedEmbedding]:
        length, attention = source.shape[1], encoder.layers[0].self_attention
        return pack(encoder), _packed_embedding(embedding, attention, 0, length, packed_linear.padded(length))

    if not isinstance(embedding.tokens, TokenEmbedding) or not has_packed_form(encoder):
        return reference()
    return transformer.encode(_weight(encoder), operands, source, lengths, reference)


def start(decoder: Decoder, memory: Memory, reference: Callable[[], S]) -> IncrementalState | S:
    """Return the state before the first token: that of the packed decoder, or the result of `reference`."""
    if not has_packed_form(decoder):
        return reference()
    return transformer.start(_weight(decoder), partial(pack, decoder), memory.features, memory.lengths, reference)


def start_without_memory(decoder: CausalDecoder, rows: int, reference: Callable[[], S]) -> IncrementalState | S:
    """Return the state of `rows` rows before their first token: that of the packed decoder, or that of `reference`."""
    if not has_packed_form(decoder):
        return reference()
    return transformer.start_without_memory(_weight(decoder), partial(pack, decoder), rows, reference)


def decode_step(
    decoder: Decoder | CausalDecoder, embedding: Embedding, state: IncrementalState, tokens: Tensor
) -> tuple[Tensor, IncrementalState]:
    """Return the features (B, E) of one more token (B,), and the state that includes it."""
    packed = _packed_embedding(embedding, decoder.layers[0].self_attention, state.length, 1, ANGLE_BLOCK)
    return transformer.decode_step(packed, state, tokens)


def decode_steps(
    decoder: Decoder | CausalDecoder, embedding: Embedding, state: IncrementalState, tokens: Tensor
) -> Tensor:
    """Return the features (B, T, E) of given tokens (B, T), computed by repeated steps."""
    features = []
    for column in tokens.unbind(1):
        step, state = decode_step(decoder, embedding, state, column)
        features.append(step)
    return torch.stack(features, 1)


def packed_decoder(
    decoder: Decoder, embedding: Embedding, output: nn.Linear, state: IncrementalState, steps: int
) -> PackedDecoder | None:
    """Return the operands of a search from the state before the first token; None if there are too few positions."""
    if isinstance(embedding.positions, Learned) and steps > embedding.positions.maximum_length:
        return None
    packed = _packed_embedding(
        embedding, decoder.layers[0].self_attention, 0, steps, -(-steps // ANGLE_BLOCK) * ANGLE_BLOCK
    )
    return PackedDecoder(
        state, packed, packed_linear.packed_columns(output), output.out_features, packed_linear.kind_of(output)
    )


def _weight(stack: Stack) -> Tensor:
    return stack.layers[0].feed_forward.widen.weight
