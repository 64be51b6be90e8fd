"""A model's architecture: its parts as boxes in the order of the data flow, and an SVG drawing of them.

Columns of boxes run from the input at the bottom to the output at the top, as in papers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal

from torch import nn

from attent.attention.multihead import MultiHeadAttention
from attent.errors import ArgumentError
from attent.layers.feed_forward import FeedForward
from attent.layers.residual import Residual
from attent.layers.ssru import SSRU
from attent.views.labels import cut
from attent.views.palette import palette

BlockKind = Literal["embedding", "attention", "norm", "feed_forward", "recurrent", "output"]
# Sides of a model by module name, with the tokens that they read.
SIDES = {"encoder": "source", "decoder": "target"}

# Sizes in pixels: of a box, between boxes, around a column, where residual connections and layer counts are drawn, and
# of round corners.
BOX_WIDTH, BOX_HEIGHT, GAP, PADDING, MARGIN, RADIUS = 300, 44, 20, 34, 24, 6
COLUMN_WIDTH = BOX_WIDTH + 2 * PADDING
BETWEEN, HEADER, FOOTER = 56, 64, 44
# Width of a letter of the title, in pixels.
LETTER = 11
ROLES = {"Q": "query", "K": "key", "V": "value"}
# Only boxes of attention are tinted, in the second color of the scale of weights; a key's line is dashed.
RULES = (
    ".page,.box{fill:%(paper)s}.ink,.tip{fill:%(ink)s}.faint{fill:%(quiet)s}.line{stroke:%(ink)s}.box{stroke:%(ink)s}"
    ".group{fill:%(raised)s;stroke:%(line)s}.attention{fill:%(tint)s;stroke:%(weight)s}"
    + "".join(f".{role}{{fill:%({role})s}}.line.{role}{{stroke:%({role})s}}" for role in ROLES.values())
)
LIGHT, DARK = (
    RULES % {"tint": colors["ramp"][1], **{name: values[0] for name, values in colors.items()}}
    for colors in (palette(), palette(dark=True))
)
# The style sheet, and the tips of lines.
HEAD = (
    f"<style>svg{{color-scheme:light dark;font-family:system-ui,sans-serif}}{LIGHT}"
    f"@media (prefers-color-scheme:dark){{{DARK}}}"
    ".line.line{fill:none;stroke-width:1.4}.line.key{stroke-dasharray:4 2}</style><defs>"
) + "".join(
    f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    f'<path class="{name}" d="M0 0L8 4L0 8z"/></marker>'
    for name in ("tip", *ROLES.values())
)


@dataclass(frozen=True)
class Box:
    """A part of a model.

    Args:
        title: the name of the part.
        detail: the sizes of the part.
        kind: the kind of block.
        parameters: the number of parameters not counted in earlier boxes.
        is_shared: whether it has parameters, all shared with earlier boxes.
        skip: the number of boxes below that a residual connection into this box bypasses.
        reads_memory: whether it attends to the encoder's output.
    """

    title: str
    detail: str
    kind: BlockKind
    parameters: int = 0
    is_shared: bool = False
    skip: int = 0
    reads_memory: bool = False


@dataclass(frozen=True)
class Group:
    """A sequence of boxes that is repeated a number of times."""

    boxes: tuple[Box, ...]
    times: int = 1

    @property
    def has_frame(self) -> bool:
        """True if a frame marks the boxes as repeated, for each layer or for each step."""
        return self.times > 1 or (len(self.boxes) > 1 and any(box.kind == "recurrent" for box in self.boxes))


@dataclass(frozen=True)
class ModelColumn:
    """A side of a model, from input to output."""

    reads: str
    groups: tuple[Group, ...]
    gives: str


class ParameterCounter:
    """Builds boxes, counting each parameter in the first box that contains it."""

    def __init__(self) -> None:
        self._ids: set[int] = set()

    def box(
        self, title: str, detail: str, kind: BlockKind, *modules: nn.Module, skip: int = 0, reads_memory: bool = False
    ) -> Box:
        """Return a box for one or more modules."""
        parameters = {id(parameter): parameter.numel() for module in modules for parameter in module.parameters()}
        count = sum(parameters[key] for key in parameters.keys() - self._ids)
        self.mark(*modules)
        return Box(title, detail, kind, count, bool(parameters) and not count, skip, reads_memory)

    def mark(self, *modules: nn.Module) -> None:
        """Exclude the parameters of these modules from further counts."""
        self._ids.update(id(parameter) for module in modules for parameter in module.parameters())


def columns(model: Any) -> list[ModelColumn]:
    """Return a model's columns: encoder and decoder, or the only one.

    Args:
        model: a model of `attent.models`, with an `encoder`, a `decoder` or both, embeddings and `to_logits`.
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
            reads = (
                "vectors, (B, T, D)" if getattr(model.settings, "input", "tokens") == "vectors" else "tokens, (B, T)"
            )
        result.append(
            ModelColumn(
                reads, tuple(groups), f"probabilities, V = {model.to_logits.out_features:,}" if is_last else "memory"
            )
        )
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
        yield counter.box(f"+ {class_words(positions)} positions", sizes, "embedding", positions)


def _stack(stack: Any, side: str, counter: ParameterCounter) -> Iterator[Group]:
    """Return the groups of a stack: its layers and its final norm, or the parts of a recurrent side.

    All layers of a stack have the same structure.
    """
    layers = list(getattr(stack, "layers", ()))
    if layers and hasattr(layers[0], "sub_layers"):
        yield Group(tuple(layer_boxes(layers[0].sub_layers, side, counter)), len(layers))
        counter.mark(*layers)
        if isinstance(stack.norm, nn.LayerNorm):
            yield Group((counter.box("Norm", f"{stack.norm.normalized_shape[0]:,}", "norm", stack.norm),))
        return
    yield Group(tuple(_recurrent_side(stack, counter)))


def layer_boxes(
    sub_layers: Sequence[tuple[nn.Module, Residual]], side: str, counter: ParameterCounter
) -> Iterator[Box]:
    """Return the boxes of a layer; a decoder's first attention is causal, and its second one reads the memory."""
    attentions = [module for module, _ in sub_layers if isinstance(module, MultiHeadAttention)]
    for module, around in sub_layers:
        norm = f"{around.norm.normalized_shape[0]:,}"
        if around.pre:
            yield counter.box("Norm", norm, "norm", around)
        if isinstance(module, FeedForward):
            yield _feed_forward(module, counter)
        elif isinstance(module, SSRU):
            yield counter.box("Recurrent unit", f"{module.value.in_features:,} · SSRU", "recurrent", module)
        else:
            assert isinstance(module, MultiHeadAttention)
            is_cross = module is not attentions[0] or len(attentions) < len(sub_layers) - 1
            title = (
                "Attention to the source"
                if is_cross
                else "Causal self-attention"
                if side == "decoder"
                else "Self-attention"
            )
            yield counter.box(title, _attention_detail(module), "attention", module, reads_memory=is_cross)
        if around.pre:
            yield Box("Add", "", "norm", skip=2)
        else:
            yield counter.box("Add & norm", norm, "norm", around, skip=1)


def _attention_detail(attention: MultiHeadAttention) -> str:
    groups = f", {attention.key_value_heads} of keys" if attention.key_value_heads != attention.heads else ""
    parts = [
        f"{attention.heads} heads of {attention.key_width}{groups}",
        class_words(attention.score),
        class_words(attention.normalizer),
    ]
    return " · ".join([*parts, *([] if attention.position is None else [class_words(attention.position)])])


def _feed_forward(module: FeedForward, counter: ParameterCounter) -> Box:
    widths = " → ".join(
        f"{width:,}" for width in (module.widen.in_features, module.widen.out_features, module.narrow.out_features)
    )
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
        detail = f"{class_words(attention.score)} · {class_words(attention.normalizer)}"
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


def class_words(part: object) -> str:
    """Return the name of a part's class in words: "scaled dot"."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(part).__name__).lower()


def architecture(model: nn.Module, path: Path | str, title: str = "") -> None:
    """Draw a model's architecture as an SVG file, which follows the reader's light or dark theme.

    Args:
        model: a model of `attent.models`.
        path: the file to write, ending in .svg.
        title: the name of the model; its class by default.

    Raises:
        ArgumentError: the file does not end in .svg, or cannot be written.
    """
    check_svg(path)
    parameters = {id(parameter): parameter.numel() for parameter in model.parameters()}
    save(svg(columns(model), title or type(model).__name__, f"{sum(parameters.values()):,} parameters"), path)


def save(text: str, path: Path | str) -> None:
    """Write a drawing into a file.

    Raises:
        ArgumentError: it cannot be written.
    """
    try:
        Path(path).write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise ArgumentError(f"{path} cannot be written: {error.strerror}") from error


def check_svg(path: Path | str) -> None:
    """Check that a file's name ends in .svg.

    Raises:
        ArgumentError: it does not.
    """
    if Path(path).suffix.lower() != ".svg":
        raise ArgumentError(f"the drawing of a model must end in .svg, got {str(path)!r}")


def svg(sides: Sequence[ModelColumn], title: str, subtitle: str) -> str:
    """Return an SVG drawing of columns."""
    heights = [sum(_group_height(group) for group in side.groups) + GAP * (len(side.groups) + 1) for side in sides]
    height = HEADER + max(heights) + 2 * FOOTER
    width = 2 * MARGIN + len(sides) * COLUMN_WIDTH + (len(sides) - 1) * BETWEEN
    bottom = height - FOOTER
    parts: list[str] = []
    memory: tuple[float, float] | None = None
    for index, side in enumerate(sides):
        left = MARGIN + index * (COLUMN_WIDTH + BETWEEN)
        drawn, top, readers = _column(side, left, bottom)
        parts += drawn
        if memory is not None:
            turn = left - BETWEEN / 2
            for reader in readers:
                parts.append(arrow([memory, (turn, memory[1]), (turn, reader), (left + PADDING, reader)]))
        memory = (left + PADDING + BOX_WIDTH / 2, top)
    boxes = (
        "; ".join(", ".join(filter(None, (box.title, box.detail))) for group in side.groups for box in group.boxes)
        for side in sides
    )
    described = [f"{side.reads}: {text}: {side.gives}" for side, text in zip(sides, boxes, strict=True)]
    return page(width, height, title, subtitle, parts, ". ".join(described))


def page(width: float, height: float, title: str, subtitle: str, parts: Sequence[str], description: str) -> str:
    """Return an SVG image of shapes below a heading, in the reader's light or dark theme.

    Args:
        width: in pixels.
        height: in pixels.
        title: the first line of the heading.
        subtitle: the second line.
        parts: the shapes.
        description: the boxes from the input to the output, for screen readers.
    """
    heading = [
        text_at(MARGIN, 30, cut(title, int((width - 2 * MARGIN) / LETTER)), "ink", 18, "bold"),
        text_at(MARGIN, 50, subtitle, "faint", 14),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img">'
        f"<title>{escape(title)}</title><desc>From the input at the bottom to the output at the top. "
        f"{escape(description)}.</desc>{HEAD}</defs>"
        f'<rect class="page" width="{width:g}" height="{height:g}"/>{"".join([*heading, *parts])}</svg>\n'
    )


def _group_height(group: Group) -> float:
    return len(group.boxes) * (BOX_HEIGHT + GAP) - GAP + 2 * GAP * group.has_frame


def _column(side: ModelColumn, left: float, bottom: float) -> tuple[list[str], float, list[float]]:
    """Return the shapes of a column, its top, and the heights at which it reads the memory."""
    middle, y = left + PADDING + BOX_WIDTH / 2, bottom
    parts, readers = [text_at(middle, bottom + 22, side.reads, "ink", 14, anchor="middle")], list[float]()
    for group in side.groups:
        height = _group_height(group)
        if group.has_frame:
            parts.append(
                f'<rect class="group" x="{left + 4}" y="{y - GAP - height:g}" width="{COLUMN_WIDTH - 8}" '
                f'height="{height:g}" rx="{RADIUS}"/>'
            )
        if group.times > 1:
            parts.append(
                text_at(left + COLUMN_WIDTH - 8, y - height - GAP - 6, f"{group.times} ×", "ink", 14, "bold", "end")
            )
        y -= GAP if group.has_frame else 0
        for box in group.boxes:
            parts.append(arrow([(middle, y), (middle, y - GAP)]))
            y -= GAP + BOX_HEIGHT
            parts += _box(box, left + PADDING, y)
            if box.reads_memory:
                readers.append(y + BOX_HEIGHT / 2)
            if box.skip:
                below = y + BOX_HEIGHT + GAP + box.skip * (BOX_HEIGHT + GAP) - GAP / 2
                side_x = left + PADDING + BOX_WIDTH + 16
                target = y + BOX_HEIGHT / 2
                parts.append(
                    arrow([(middle, below), (side_x, below), (side_x, target), (left + PADDING + BOX_WIDTH, target)])
                )
        y -= GAP if group.has_frame else 0
    parts.append(arrow([(middle, y), (middle, y - GAP)]))
    parts.append(text_at(middle, y - GAP - 6, side.gives, "ink", 14, anchor="middle"))
    return parts, y - GAP, readers


def _box(box: Box, x: float, y: float) -> list[str]:
    count = "shared" if box.is_shared else f"{box.parameters:,}" if box.parameters else ""
    parts = [rectangle(x, y, BOX_WIDTH, box.kind)]
    parts.append(text_at(x + 12, y + (18 if box.detail or count else 27), box.title, "ink", 14, "600"))
    parts += [text_at(x + BOX_WIDTH - 12, y + 18, count, "ink", 12, anchor="end")] if count else []
    parts += [text_at(x + 12, y + 35, box.detail, "faint", 12)] if box.detail else []
    return parts


def rectangle(x: float, y: float, width: float, kind: str) -> str:
    """Return the shape of a box, tinted if it is attention."""
    return (
        f'<rect class="box{" attention" * (kind == "attention")}" x="{x:g}" y="{y:g}" width="{width:g}" '
        f'height="{BOX_HEIGHT}" rx="{RADIUS}"/>'
    )


def arrow(points: Sequence[tuple[float, float]], role: str = "tip") -> str:
    """Return a line through these points, with a tip at its end, in ink or in the color of a role."""
    return (
        f'<polyline class="line {role}" marker-end="url(#{role})" '
        f'points="{" ".join(f"{x:g},{y:g}" for x, y in points)}"/>'
    )


def text_at(x: float, y: float, text: str, style: str, size: int, weight: str = "normal", anchor: str = "start") -> str:
    """Return a line of text; y is its baseline, and the size is in pixels."""
    return (
        f'<text class="{style}" x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )
