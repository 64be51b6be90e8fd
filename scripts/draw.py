"""The figures of introductions to attention: an attention step by step, heads beside each other, a Transformer layer.

    python scripts/draw.py attention|heads|layer|model --out FILE.svg [--run RUN]

Without a run they are drawn in symbols, with one in its numbers. Like the drawing of a model, they run from the input
at the bottom to the output at the top; all fit a phone's screen.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from architecture import (
    BOX_HEIGHT,
    GAP,
    HEADER,
    LETTER,
    MARGIN,
    RADIUS,
    ROLES,
    SIDES,
    Box,
    ParameterCounter,
    architecture,
    arrow,
    check_svg,
    class_words,
    layer_boxes,
    page,
    rectangle,
    save,
    text_at,
)
from torch import Tensor, nn

from attent.attention import reference
from attent.attention.arguments import prepare
from attent.attention.multihead import MultiHeadAttention
from attent.errors import ArgumentError, AttentError
from attent.runs.folder import read
from attent.views.labels import cut
from attent.views.step import equation_of

Part = Literal["attention", "heads", "layer", "model"]
# Sizes in pixels: of a figure, and of the room for the labels below and above its boxes.
WIDTH, FOOTER, TOP = 376, 44, 44
# Centers of queries, keys and values, the boxes of queries and keys alone, and of both, in the figure of an attention.
QUERY, KEY, VALUE, SIDE_BOX, WIDE_BOX = 75, 201, 318, 114, 240
# Characters that a detail in a wide box may have.
LETTERS = 34
# The same for three columns of heads, and the offset between heads.
HEADS, HEAD_BOX, STACK_BOX, OFFSET = (68, 188, 308), 110, 300, 6
# Boxes of a layer and the left edges of its columns.
LAYER_BOX, LAYER_LEFT = 152, (12, 196)
# Boxes of the steps of scores and of the formula, by the name of the step.
STEPS = {
    "query_half": ("Linear", "W₁q + b"),
    "key_half": ("Linear", "W₂k"),
    "unit_query": ("Normalize", "q / |q|"),
    "unit_key": ("Normalize", "k / |k|"),
    "pairs": ("Concat", "[q; k]"),
    "products": ("MatMul", "QKᵀ"),
    "cosines": ("MatMul", "cosines"),
    "difference": ("Subtract", "(q − k) / σ"),
    "squared_distance": ("Square", "sum of features"),
    "output": ("MatMul", "weights · V"),
}
# Names of layers in papers, by those of the drawing of a model.
LAYER_TITLES = {"Causal self-attention": "Self-attention", "Attention to the source": "Cross-attention"}


@dataclass(frozen=True)
class _Attention:
    """An attention to draw: the module, its name in the model, its mask in words, and its sizes in words or numbers."""

    module: Any
    name: str
    mask: str
    widths: tuple[int, int, int]
    sizes: tuple[Any, Any, Any]
    heads: int | None = None
    key_value_heads: int | None = None

    def shape(self, rows: str, columns: Any, heads: int | None) -> str:
        return f"({rows}, {columns})" if self.heads is None else f"(B, {heads}, {rows}, {columns})"


def draw(part: Part, path: Path | str, model: nn.Module | None = None, name: str = "") -> None:
    """Draw a figure as an SVG file, which follows the reader's light or dark theme.

    Args:
        part: "attention" for the steps of the model's first attention, "heads" for its heads beside each other,
            "layer" for a layer of each side of a Transformer, "model" for all layers.
        path: the file to write, ending in .svg.
        model: a model of `attent.models`; without it, the first three show symbols: Tq and Tk queries and keys, Dk and
            Dv their widths, E the model's, F the feed-forward network's, H heads and N layers.
        name: the name of the model; its class by default.

    Raises:
        ArgumentError: the part is unknown, needs a model, or is not in this model; or the file does not end in .svg or
            cannot be written.
    """
    check_svg(path)
    if part not in get_args(Part):
        raise ArgumentError(f"unknown part {part!r} (known: {', '.join(get_args(Part))})")
    kind = "" if model is None else type(model).__name__
    if part != "model":
        figure = {"attention": _attention_figure, "heads": _heads_figure, "layer": _layer_figure}[part]
        save(figure(model, name or kind), path)
    elif model is None:
        raise ArgumentError("a drawing of a model needs a model")
    else:
        architecture(model, path, f"{name}: {kind}" if name else kind)


def _first_attention(model: Any, *, has_heads: bool) -> _Attention:
    if model is None:
        module = MultiHeadAttention(4, 2)
        return _Attention(module, "", "optional", (2, 2, 2), ("Dk", "Dk", "Dv"))
    for name, module in model.named_modules():
        is_multihead = isinstance(module, MultiHeadAttention)
        if is_multihead or (not has_heads and hasattr(module, "score") and hasattr(module, "normalizer")):
            mask = "causal" if name.startswith("decoder") and "cross" not in name else "padding"
            if is_multihead:
                widths, heads = (module.key_width, module.key_width, module.value_width), module.heads
                return _Attention(module, name, mask, widths, widths, heads, module.key_value_heads)
            widths = (model.settings.width, model.settings.memory_width, model.settings.memory_width)
            return _Attention(module, name, mask, widths, widths, 1, 1)
    raise ArgumentError(f"this {type(model).__name__} has no {'multi-head ' if has_heads else ''}attention to draw")


def _steps(attention: _Attention) -> dict[str, Tensor]:
    """Return the steps of the formula for two tokens, of which the mask hides one."""
    module, lengths = attention.module, torch.tensor([1])
    query, key, value = (
        torch.zeros(1, heads or module.heads, 2, width)
        for heads, width in zip(
            (attention.heads, attention.key_value_heads, attention.key_value_heads), attention.widths, strict=True
        )
    )
    mask, weighting = "causal" if attention.mask == "causal" else None, None
    if (local := getattr(module, "local", None)) is not None:
        mask, weighting = local(query[:, 0], lengths, torch.zeros(1, 2))
    prepared = prepare(
        query,
        key,
        value,
        score=module.score,
        normalizer=module.normalizer,
        mask=mask,
        lengths=None if mask == "causal" else lengths,
        query_start=0,
        position=getattr(module, "position", None),
        soft_cap=getattr(module, "soft_cap", None),
        weighting=weighting,
    )
    with torch.no_grad():
        return reference.steps(*prepared)


def _rows(attention: _Attention) -> list[tuple[tuple[str, str] | None, ...]]:
    """Return titles and details of the boxes: a pair for a row of queries and keys alone, else one."""
    module, steps = attention.module, _steps(attention)
    position = getattr(module, "position", None)
    rows: list[tuple[tuple[str, str] | None, ...]] = []
    if position is not None and position.rotates:
        rows.append((("Rotate", class_words(position)),) * 2)
    if type(module.score).__name__ == "General":
        rows.append((("Linear", "Wᵀq"), None))
    pairs = attention.shape("Tq", "Tk", attention.heads)
    for before, name in zip(["", *steps], steps, strict=False):
        if name in ("query_half", "unit_query"):
            rows.append((STEPS[name], STEPS[name.replace("query_half", "key_half").replace("query", "key")]))
            continue
        if name in ("key_half", "unit_key", "gate"):
            continue
        boxes = [_step(attention, name, before, is_gated="gate" in steps)]
        if name == "hidden":
            boxes = [("Linear", "W[q; k]") if before == "pairs" else ("Add", "every pair"), ("tanh", "")]
        # features of every pair have a fifth axis
        values = steps[name]
        shape = pairs if values.dim() == 4 else f"{pairs[:-1]}, {values.shape[-1]})"
        for title, detail in boxes:
            whole = f"{detail} {shape}".strip()
            rows.append(((title, whole if name != "output" and len(whole) <= LETTERS else cut(detail, LETTERS)),))
    return rows


def _step(attention: _Attention, name: str, before: str, *, is_gated: bool) -> tuple[str, str]:
    """Return the title and the detail of the box of a step."""
    module = attention.module
    match name:
        case "scores" if is_gated:
            return "Gate", "× σ(W_g[q; k] + b_g)"
        case "scores" | "inner":
            return _score(module.score.inner if is_gated else module.score, before, attention.sizes[1])
        case "capped":
            return "Soft cap", f"{module.soft_cap:g} · tanh(scores / {module.soft_cap:g})"
        case "biased":
            return "Add", f"{class_words(module.position)} bias"
        case "masked":
            local = getattr(module, "local", None)
            return "Mask", attention.mask if local is None else f"{local.distance} keys to each side"
        case "weights" if before == "normalised":
            return "Multiply", "Gaussian around the center"
        case "weights" | "normalised":
            normalizer = type(module.normalizer).__name__
            return "SoftMax" if normalizer == "Softmax" else normalizer, "over the keys"
        case _:
            return STEPS.get(name, (name, ""))


def _score(score: Any, before: str, width: Any) -> tuple[str, str]:
    """Return the box of a score's last step."""
    match before:
        case "products":
            root = "√Dk" if width == "Dk" else f"√Dk = √{width}"
            is_usual = width == "Dk" or abs(score.scale(width) - width**-0.5) < 1e-9
            return "Scale", f"÷ {root}" if is_usual else f"× {score.scale(width):.4g}"
        case "cosines":
            return "Scale", f"÷ τ = {score.temperature:g}"
        case "squared_distance":
            return "Scale", "× −½"
        case "hidden":
            return ("Sum", "over the features") if getattr(score, "v", None) is None else ("Linear", "vᵀ")
        case _ if type(score).__name__ in ("Dot", "General"):
            return STEPS["products"]
        case _:
            return "Score", equation_of(score).partition(" = ")[2].partition(", ")[0]


def _attention_figure(model: nn.Module | None, name: str) -> str:
    attention = _first_attention(model, has_heads=False)
    rows = _rows(attention)
    first = next(index for index, row in enumerate(rows) if len(row) == 1)
    height = HEADER + TOP + len(rows) * (BOX_HEIGHT + GAP) + GAP + FOOTER
    bottom = y = height - FOOTER
    middle, starts, parts = (QUERY + KEY) / 2, [y, y], list[str]()
    for index, row in enumerate(rows):
        y -= GAP + BOX_HEIGHT
        if len(row) == 2:
            for side, (center, box) in enumerate(zip((QUERY, KEY), row, strict=True)):
                if box is not None:
                    parts.append(arrow([(center, starts[side]), (center, y + BOX_HEIGHT)], ROLES["QK"[side]]))
                    parts += _box(box, center, y, SIDE_BOX)
                    starts[side] = y
            continue
        below = [(middle, y + BOX_HEIGHT + GAP, "")]
        inputs = zip((QUERY, KEY), starts, "QK", strict=True) if index == first else below
        parts += [arrow([(x, start), (x, y + BOX_HEIGHT)], ROLES.get(letter, "tip")) for x, start, letter in inputs]
        parts += _box(row[0] or ("", ""), middle, y, WIDE_BOX)
    parts.append(
        arrow([(VALUE, bottom), (VALUE, y + BOX_HEIGHT / 2), (middle + WIDE_BOX / 2, y + BOX_HEIGHT / 2)], "value")
    )
    output = attention.shape("Tq", attention.sizes[2], attention.heads)
    parts += _output(middle, y, f"output {output}")
    shapes = zip(("Tq", "Tk", "Tk"), attention.sizes, (0, 1, 1), strict=True)
    for letter, x, (length, width, shared) in zip("QKV", (QUERY, KEY, VALUE), shapes, strict=True):
        heads = attention.key_value_heads if shared else attention.heads
        parts += _input(x, bottom, letter, attention.shape(length, width, heads))
    described = "; ".join(" and ".join(", ".join(filter(None, box)) for box in row if box) for row in rows)
    title, score = f"{_kind(attention.module.score)} attention", equation_of(attention.module.score)
    described = f"Q and K: {described}; V enters the last step"
    return _page(height, title, name, attention.name or score, parts, described)


def _kind(score: Any) -> str:
    """Return the name of a score as in "Scaled dot-product attention"."""
    words = class_words(score).replace("dot", "dot-product")
    return words[:1].upper() + words[1:]


def _heads_figure(model: nn.Module | None, name: str) -> str:
    attention = _first_attention(model, has_heads=True)
    module = attention.module
    heads, groups = (module.heads, module.key_value_heads) if model is not None else ("H", "H")
    linears = (module.query_projection, module.key_projection, module.value_projection)
    widths = [("E", "") if model is None else (linear.in_features, linear.out_features) for linear in linears]
    counts = (heads, groups, groups)
    has_linear = module.output is not None
    height = HEADER + TOP + (4 + has_linear) * (BOX_HEIGHT + GAP) + 2 * OFFSET + GAP + FOOTER
    bottom = height - FOOTER
    parts, middle = list[str](), HEADS[1]
    for x, letter, (input_width, output_width), count, width in zip(
        HEADS, "QKV", widths, counts, attention.sizes, strict=True
    ):
        parts += _input(x, bottom, letter, f"(B, {'Tq' if letter == 'Q' else 'Tk'}, {input_width})")
        y = bottom
        for box in (
            ("Linear", f"{input_width} → {output_width or f'{count}·{width}'}"),
            ("Split", f"{_heads(count)} of {width}"),
        ):
            parts += [arrow([(x, y), (x, y - GAP)], ROLES[letter]), *_box(box, x, y - GAP - BOX_HEIGHT, HEAD_BOX)]
            y -= GAP + BOX_HEIGHT
        parts.append(arrow([(x, y), (x, y - GAP)], ROLES[letter]))
    y = bottom - 3 * (GAP + BOX_HEIGHT)
    title = f"{_kind(module.score)} attention"
    for index in range(min(2, (module.heads if model is not None else 3) - 1), -1, -1):
        x, top = middle + index * OFFSET, y - index * OFFSET
        text = (title, f"{_heads(heads)} beside each other") if not index else ("", "")
        parts += _box(text, x, top, STACK_BOX, "attention")
    merged = module.heads * module.value_width if model is not None else f"{heads}·{attention.sizes[2]}"
    rows = [("Concat", f"{heads} × {attention.sizes[2]}" + (f" = {merged}" if model is not None else ""))]
    if has_linear:
        is_plain = isinstance(module.output, nn.Linear)
        width = ("E" if model is None else module.output.out_features) if is_plain else ""
        rows.append(("Linear", f"{merged} → {width}") if is_plain else (type(module.output).__name__, ""))
    y -= 2 * OFFSET
    for row in rows:
        parts += [arrow([(middle, y), (middle, y - GAP)]), *_box(row, middle, y - GAP - BOX_HEIGHT, HEAD_BOX * 2)]
        y -= GAP + BOX_HEIGHT
    last = rows[-1][1].rpartition(" ")[2] if has_linear else merged
    parts += _output(middle, y, f"output (B, Tq, {last})")
    steps = "; ".join(f"{box[0]}, {box[1]}" for box in rows)
    described = f"Q, K and V each: Linear; Split into {_heads(heads)}; {title} of every head; {steps}"
    return _page(height, "Multi-head attention", name, attention.name or "H heads of width Dk", parts, described)


def _heads(count: Any) -> str:
    return f"{count} head" if count == 1 else f"{count} heads"


def _layers(model: Any) -> list[tuple[str, Any, list[Box], str]]:
    """Return the name, the number, the boxes and the input of each side's layers."""
    if model is None:
        titles = ("Self-attention", "Causal self-attention", "Attention to the source")
        own, masked, cross = (
            Box(title, "H heads of Dk", "attention", reads_memory="source" in title) for title in titles
        )
        norm = Box("Add & norm", "E", "norm", skip=1)
        end = [norm, Box("Feed-forward", "E → F → E", "feed_forward"), norm]
        return [
            ("encoder", "N", [own, *end], "(B, Tk, E)"),
            ("decoder", "N", [masked, norm, cross, *end], "(B, Tq, E)"),
        ]
    result: list[tuple[str, Any, list[Box], str]] = []
    sides = [side for side in SIDES if hasattr(getattr(getattr(model, side, None), "layers", [None])[0], "sub_layers")]
    for side in sides:
        layers = getattr(model, side).layers
        sub_layers = layers[0].sub_layers
        tokens = "T" if len(sides) == 1 else "Tk" if side == "encoder" else "Tq"
        shape = f"(B, {tokens}, {sub_layers[0][1].norm.normalized_shape[0]})"
        result.append((side, len(layers), [*layer_boxes(sub_layers, side, ParameterCounter())], shape))
    if not result:
        raise ArgumentError(f"this {type(model).__name__} has no Transformer layer to draw")
    return result


def _layer_figure(model: nn.Module | None, name: str) -> str:
    sides = _layers(model)
    rise = BOX_HEIGHT + GAP
    height = HEADER + TOP + max(len(boxes) for _, _, boxes, _ in sides) * rise + 2 * GAP + FOOTER
    bottom, parts, described = height - FOOTER, list[str](), list[str]()
    lefts = LAYER_LEFT if len(sides) == 2 else ((WIDTH - LAYER_BOX) / 2,)
    memory: tuple[float, float] | None = None
    for (side, count, boxes, shape), left in zip(sides, lefts, strict=True):
        middle, right, top = left + LAYER_BOX / 2, left + LAYER_BOX, bottom - len(boxes) * rise - 2 * GAP
        frame = f'x="{left - 8}" y="{top + GAP / 2:g}" width="{LAYER_BOX + 24}" height="{bottom - top - GAP:g}"'
        parts.append(f'<rect class="group" {frame} rx="{RADIUS}"/>')
        parts += [*_input(middle, bottom, f"{side} layer, {count} ×", shape)]
        y = bottom - GAP / 2
        for box in boxes:
            parts.append(arrow([(middle, y + (GAP / 2 if box is boxes[0] else 0)), (middle, y - GAP)]))
            y -= rise
            parts += _box(_layer_words(box), middle, y, LAYER_BOX, box.kind)
            at, below = y + BOX_HEIGHT / 2, y + (box.skip + 1) * rise - GAP / 2
            if box.skip:
                parts.append(arrow([(middle, below), (right + 10, below), (right + 10, at), (right, at)]))
            if box.reads_memory and memory is not None:
                gutter = left - 12
                parts.append(arrow([memory, (gutter, memory[1]), (gutter, at), (left, at)]))
        memory = (middle, top)
        parts.append(arrow([(middle, y), memory]))
        result = "output" if side == sides[-1][0] else "memory"
        parts.append(text_at(middle, top - 8, result, "ink", 14, anchor="middle"))
        words = (", ".join(filter(None, _layer_words(box))) for box in boxes)
        described.append(f"{side} layer, {count} times: {'; '.join(words)}")
    title = "Transformer layers" if len(sides) == 2 else "Transformer layer"
    norm = "pre-norm" if sides[0][2][0].kind == "norm" else "post-norm"
    return _page(height, title, name, norm, parts, ". ".join(described))


def _layer_words(box: Box) -> tuple[str, str]:
    """Return the title and the detail of a box of a layer, short enough for half of a phone's screen."""
    detail = box.detail.partition(" · ")[0]
    if box.kind == "attention":
        detail = detail.partition(",")[0]
    return LAYER_TITLES.get(box.title, box.title), f"masked, {detail}" if box.title.startswith("Causal") else detail


def _page(height: float, title: str, name: str, part: str, parts: Sequence[str], described: str) -> str:
    subtitle = cut(": ".join(filter(None, (name, part))), int(1.5 * (WIDTH - 2 * MARGIN) / LETTER))
    return page(WIDTH, height, title, subtitle, parts, described)


def _box(box: tuple[str, str], x: float, y: float, width: float, kind: str = "") -> list[str]:
    """Return a box around x, with its title and detail in the middle."""
    title, detail = box
    parts = [rectangle(x - width / 2, y, width, kind)]
    parts += [text_at(x, y + (18 if detail else 27), title, "ink", 14, "600", "middle")] if title else []
    # a letter of a wide font is 0.62 of its size
    size = min(12, int(width / (0.62 * max(len(detail), 1))))
    return parts + ([text_at(x, y + 35, detail, "faint", size, anchor="middle")] if detail else [])


def _input(x: float, y: float, title: str, shape: str) -> list[str]:
    return [
        text_at(x, y + 18, title, ROLES.get(title, "ink"), 14, "600", "middle"),
        text_at(x, y + 35, shape, "faint", 12, anchor="middle"),
    ]


def _output(x: float, y: float, text: str) -> list[str]:
    return [arrow([(x, y), (x, y - GAP)]), text_at(x, y - GAP - 8, text, "ink", 14, anchor="middle")]


def main() -> None:
    """Draw the figure of a part; an error prints one line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", choices=get_args(Part))
    parser.add_argument("--out", type=Path, required=True, help="FILE.svg")
    parser.add_argument("--run", type=Path, help="run folder; symbols are drawn without one")
    options = parser.parse_args()
    try:
        model = None if options.run is None else read(options.run).model
        draw(options.part, options.out, model, options.run.resolve().name if options.run else "")
    except AttentError as error:
        sys.exit(f"draw: {error}")


if __name__ == "__main__":
    main()
