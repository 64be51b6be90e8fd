"""The parts of a model as boxes in the order in which data flows through them, to be drawn as a diagram."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from attent.attention.multihead import MultiHeadAttention
from attent.layers.feed_forward import FeedForward
from attent.layers.residual import Residual

Kind = Literal["embedding", "attention", "norm", "feed_forward", "recurrent", "output"]
# Sides of a model by the name of their module, with the tokens that they read.
SIDES = {"encoder": "source", "decoder": "target"}


@dataclass(frozen=True)
class Box:
    """A part of a model.

    Args:
        title: of the part.
        detail: its sizes.
        kind: decides the color.
        parameters: the number of those that no earlier box has.
        is_shared: whether it has parameters, all of them those of earlier boxes.
        skip: the number of boxes below it over which a residual connection leads into it.
        reads_memory: whether it attends to the encoder's output.
    """

    title: str
    detail: str
    kind: Kind
    parameters: int = 0
    is_shared: bool = False
    skip: int = 0
    reads_memory: bool = False


@dataclass(frozen=True)
class Group:
    """Boxes that follow each other, so many times."""

    boxes: tuple[Box, ...]
    times: int = 1

    @property
    def has_frame(self) -> bool:
        """True if a frame shows what is repeated, for each layer or for each step."""
        return self.times > 1 or (len(self.boxes) > 1 and any(box.kind == "recurrent" for box in self.boxes))


@dataclass(frozen=True)
class ModelColumn:
    """A side of a model, from its input to its output."""

    reads: str
    groups: tuple[Group, ...]
    gives: str


class ParameterCounter:
    """Builds boxes, and counts each parameter in the first box that has it."""

    def __init__(self) -> None:
        self._ids: set[int] = set()

    def box(self, title: str, detail: str, kind: Kind, *modules: nn.Module, skip: int = 0, reads_memory: bool = False) -> Box:
        """Return the box of modules."""
        parameters = {id(parameter): parameter.numel() for module in modules for parameter in module.parameters()}
        count = sum(parameters[key] for key in parameters.keys() - self._ids)
        self.mark(*modules)
        return Box(title, detail, kind, count, bool(parameters) and not count, skip, reads_memory)

    def mark(self, *modules: nn.Module) -> None:
        """Count these parameters no more."""
        self._ids.update(id(parameter) for module in modules for parameter in module.parameters())


def columns(model: Any) -> list[ModelColumn]:
    """Return a model's columns: encoder and decoder, or the only one.

    Args:
        model: with an `encoder`, a `decoder` or both, embeddings and `to_logits`, as `attent.models` builds them.
    """
    counter = ParameterCounter()
    sides = [name for name in SIDES if hasattr(model, name)]
    result: list[ModelColumn] = []
    for name in sides:
        is_last, stack = name == sides[-1], getattr(model, name)
        groups = [Group(tuple(_embedding(model, SIDES[name], counter))), *_stack(stack, name, counter)]
        if name == "encoder" and isinstance(norm := getattr(model, "norm", None), nn.LayerNorm):
            groups.append(Group((counter.box("Norm", f"{norm.normalized_shape[0]:,}", "norm", norm),)))
        if is_last:
            groups.append(Group(tuple(_output(model, counter))))
        if len(sides) > 1:
            reads = f"{SIDES[name]} tokens, (B, {'Tk' if name == 'encoder' else 'Tq'})"
        else:
            reads = "vectors, (B, T, D)" if getattr(model.settings, "input", "tokens") == "vectors" else "tokens, (B, T)"
        result.append(ModelColumn(reads, tuple(groups), f"probabilities, V = {model.to_logits.out_features:,}" if is_last else "memory"))
    return result


def _embedding(model: Any, side: str, counter: ParameterCounter) -> Iterator[Box]:
    embedding = getattr(model, f"{side}_embedding", None) or model.embedding
    tokens = getattr(embedding, "tokens", embedding)
    weight = next(tokens.parameters())
    sizes = weight.shape if hasattr(tokens, "weight") else weight.shape[::-1]
    yield counter.box("Embedding", f"{sizes[0]:,} × {sizes[1]:,}", "embedding", tokens)
    if getattr(model, "cls", None) is not None:
        yield Box("[CLS]", "a learned vector before all others", "embedding", model.cls.numel())
    positions = getattr(embedding, "positions", None) or getattr(model, "positions", None)
    if positions is not None:
        sizes = " × ".join(f"{size:,}" for parameter in positions.parameters() for size in parameter.shape)
        yield counter.box(f"+ {_words(positions)} positions", sizes, "embedding", positions)


def _stack(stack: Any, side: str, counter: ParameterCounter) -> Iterator[Group]:
    """Return the groups of a stack: its layers, alike but for their numbers, and its final norm; or the parts of a recurrent side."""
    layers = list(getattr(stack, "layers", ()))
    if layers and hasattr(layers[0], "sub_layers"):
        yield Group(tuple(_layer(layers[0].sub_layers, side, counter)), len(layers))
        counter.mark(*layers)
        if isinstance(stack.norm, nn.LayerNorm):
            yield Group((counter.box("Norm", f"{stack.norm.normalized_shape[0]:,}", "norm", stack.norm),))
        return
    yield Group(tuple(_recurrent_side(stack, counter)))


def _layer(sub_layers: Sequence[tuple[nn.Module, Residual]], side: str, counter: ParameterCounter) -> Iterator[Box]:
    """Return the boxes of a layer; of a decoder's attentions the first is causal, and a second one reads the memory."""
    attentions = [module for module, _ in sub_layers if isinstance(module, MultiHeadAttention)]
    for module, around in sub_layers:
        norm = f"{around.norm.normalized_shape[0]:,}"
        if around.pre:
            yield counter.box("Norm", norm, "norm", around)
        if isinstance(module, FeedForward):
            yield _feed_forward(module, counter)
        else:
            assert isinstance(module, MultiHeadAttention)
            is_cross = module is not attentions[0]
            title = "Attention to the source" if is_cross else "Causal self-attention" if side == "decoder" else "Self-attention"
            yield counter.box(title, _attention_detail(module), "attention", module, reads_memory=is_cross)
        if around.pre:
            yield Box("Add", "", "norm", skip=2)
        else:
            yield counter.box("Add & norm", norm, "norm", around, skip=1)


def _attention_detail(attention: MultiHeadAttention) -> str:
    groups = f", {attention.key_value_heads} of keys" if attention.key_value_heads != attention.heads else ""
    parts = [f"{attention.heads} heads of {attention.key_width}{groups}", _words(attention.score), _words(attention.normaliser)]
    return " · ".join([*parts, *([] if attention.position is None else [_words(attention.position)])])


def _feed_forward(module: FeedForward, counter: ParameterCounter) -> Box:
    widths = " → ".join(f"{width:,}" for width in (module.widen.in_features, module.widen.out_features, module.narrow.out_features))
    return counter.box("Feed-forward", f"{widths} · {module.activation.__name__}", "feed_forward", module)


def _recurrent_side(stack: Any, counter: ParameterCounter) -> Iterator[Box]:
    """Return the boxes of a recurrent encoder or decoder."""
    parts = {name: part for name, part in stack.named_children() if any(True for _ in part.parameters())}
    recurrent = parts.get("recurrent", stack)
    networks = [module for module in recurrent.modules() if isinstance(module, nn.GRU | nn.LSTM)]
    layers = len(networks) // (2 if "backwards" in parts else 1)
    title = f"{type(networks[0]).__name__}{' in both directions' if 'backwards' in parts else ''}"
    detail = f"{layers} layer{'s' if layers > 1 else ''} of width {networks[0].hidden_size:,}"
    # the first state is computed from the memory
    states = [parts[name] for name in ("first_state", "summary") if name in parts]
    detail += "; starts from the source" if states else ""
    yield counter.box(title, detail, "recurrent", recurrent, *states, reads_memory=bool(states))
    if "cross_attention" in parts:
        attention, queries = parts["cross_attention"], [parts["asked"]] if "asked" in parts else []
        detail = f"{_words(attention.score)} · {_words(attention.normaliser)}"
        yield counter.box("Attention to the source", detail, "attention", attention, *queries, reads_memory=True)
    if "readout" in parts:
        readout = parts["readout"]
        yield counter.box("Readout", f"{readout.in_features:,} → {readout.out_features:,}", "output", readout)
    if "norm" in parts:
        yield counter.box("Norm", f"{parts['norm'].normalized_shape[0]:,}", "norm", parts["norm"])


def _output(model: Any, counter: ParameterCounter) -> Iterator[Box]:
    linear = model.to_logits
    yield counter.box("Linear", f"{linear.in_features:,} → {linear.out_features:,}", "output", linear)
    yield Box("Softmax", "", "output")


def _words(part: object) -> str:
    """Return the name of a part's class in words: "scaled dot"."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(part).__name__).lower()
