"""A model's architecture as an SVG: columns of boxes from the input at the bottom to the output at the top, as papers draw them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from torch import nn

from attent.errors import ArgumentError
from attent.views.architecture import Box, Group, ModelColumn, columns
from attent.views.labels import cut

# Pixels of a box, between boxes, and around a column, where residual connections and the number of layers stand.
BOX_WIDTH, BOX_HEIGHT, GAP, PADDING, MARGIN = 300, 44, 20, 34, 24
COLUMN_WIDTH = BOX_WIDTH + 2 * PADDING
BETWEEN, HEADER, FOOTER = 56, 64, 44
# Pixels of a letter of the title.
LETTER = 11
STYLE = """
svg{color-scheme:light dark;font-family:system-ui,sans-serif}
.page{fill:#fff}.ink{fill:#1d2733}.faint{fill:#5b6875}.line{stroke:#5b6875;fill:none;stroke-width:1.4}.tip{fill:#5b6875}
.group{fill:#f3f5f7;stroke:#c3cbd3}.box{stroke:#00000033}
.embedding{fill:#fbd9d6}.attention{fill:#ffdfae}.norm{fill:#f6f3b5}.feed_forward{fill:#c5e5f3}.recurrent{fill:#d4e8c8}.output{fill:#ddd6f3}
@media (prefers-color-scheme:dark){
.page{fill:#14181d}.ink{fill:#e8edf2}.faint{fill:#9fabb8}.line{stroke:#9fabb8}.tip{fill:#9fabb8}
.group{fill:#1d232a;stroke:#3a444f}.box{stroke:#ffffff33}
.embedding{fill:#5c2f2c}.attention{fill:#5e4416}.norm{fill:#4d4a1a}.feed_forward{fill:#1f4a5c}.recurrent{fill:#2f4a22}.output{fill:#40366a}}
"""


def architecture(model: nn.Module, path: Path | str, title: str = "") -> None:
    """Draw a model's architecture into an SVG file, which follows the reader's light or dark theme.

    Args:
        model: of `attent.models`.
        path: the file, which ends in .svg.
        title: the name of the model; its class unless given.

    Raises:
        ArgumentError: the file has another ending, or cannot be written.
    """
    check_svg(path)
    parameters = {id(parameter): parameter.numel() for parameter in model.parameters()}
    text = svg(columns(model), title or type(model).__name__, f"{sum(parameters.values()):,} parameters")
    try:
        Path(path).write_text(text, encoding="utf-8")
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
    """Return the drawing of columns."""
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
                parts.append(_arrow([memory, (turn, memory[1]), (turn, reader), (left + PADDING, reader)]))
        memory = (left + PADDING + BOX_WIDTH / 2, top)
    heading = [
        _text(MARGIN, 30, cut(title, int((width - 2 * MARGIN) / LETTER)), "ink", 18, "bold"),
        _text(MARGIN, 50, subtitle, "faint", 13),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>'
        f'<rect class="page" width="{width}" height="{height}"/>{"".join(heading + parts)}</svg>\n'
    )


def _group_height(group: Group) -> float:
    framing = 2 * GAP if group.has_frame else 0
    return len(group.boxes) * (BOX_HEIGHT + GAP) - GAP + framing


def _column(side: ModelColumn, left: float, bottom: float) -> tuple[list[str], float, list[float]]:
    """Return the shapes of a column, its top, and the heights at which it reads the memory."""
    middle, y = left + PADDING + BOX_WIDTH / 2, bottom
    parts, readers = [_text(middle, bottom + 22, side.reads, "ink", 13, anchor="middle")], list[float]()
    for group in side.groups:
        height = _group_height(group)
        if group.has_frame:
            parts.append(
                f'<rect class="group" x="{left + 4}" y="{y - GAP - height:g}" width="{COLUMN_WIDTH - 8}" height="{height:g}" rx="10"/>'
            )
        if group.times > 1:
            parts.append(_text(left + COLUMN_WIDTH - 8, y - height - GAP - 6, f"{group.times} ×", "ink", 14, "bold", "end"))
        y -= GAP if group.has_frame else 0
        for box in group.boxes:
            parts.append(_arrow([(middle, y), (middle, y - GAP)]))
            y -= GAP + BOX_HEIGHT
            parts += _box(box, left + PADDING, y)
            if box.reads_memory:
                readers.append(y + BOX_HEIGHT / 2)
            if box.skip:
                below = y + BOX_HEIGHT + GAP + box.skip * (BOX_HEIGHT + GAP) - GAP / 2
                side_x = left + PADDING + BOX_WIDTH + 16
                target = y + BOX_HEIGHT / 2
                parts.append(_arrow([(middle, below), (side_x, below), (side_x, target), (left + PADDING + BOX_WIDTH, target)]))
        y -= GAP if group.has_frame else 0
    parts.append(_arrow([(middle, y), (middle, y - GAP)]))
    parts.append(_text(middle, y - GAP - 6, side.gives, "ink", 13, anchor="middle"))
    return parts, y - GAP, readers


def _box(box: Box, x: float, y: float) -> list[str]:
    count = "shared" if box.is_shared else f"{box.parameters:,}" if box.parameters else ""
    is_single = not (box.detail or count)
    parts = [f'<rect class="box {box.kind}" x="{x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>']
    parts.append(_text(x + 12, y + (27 if is_single else 18), box.title, "ink", 14, "600"))
    parts += [_text(x + BOX_WIDTH - 12, y + 18, count, "ink", 12, anchor="end")] if count else []
    parts += [_text(x + 12, y + 35, box.detail, "faint", 12)] if box.detail else []
    return parts


def _arrow(points: Sequence[tuple[float, float]]) -> str:
    return f'<polyline class="line" marker-end="url(#tip)" points="{" ".join(f"{x:g},{y:g}" for x, y in points)}"/>'


def _text(x: float, y: float, text: str, style: str, size: int, weight: str = "normal", anchor: str = "start") -> str:
    return (
        f'<text class="{style}" x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}">{escape(text)}</text>'
    )
