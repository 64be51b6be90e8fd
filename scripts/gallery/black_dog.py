"""The sentence of the course with its cross-attention, as SVG: the picture of the site's first page and of the README.

`PYTHONPATH=scripts python -m gallery.black_dog` draws it from docs/gallery/black-dog.json; without that file, it trains
configs/phrases.toml first, for half a minute.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

import attent
from attent.runs.durable import new_file
from attent.views.palette import color
from gallery.runs import PHRASES, run

ROOT = Path(__file__).parents[2]
READINGS, PICTURE, DARK_PICTURE = (
    ROOT / "docs" / "gallery" / "black-dog.json",
    ROOT / "docs" / "figures" / "black-dog.svg",
    ROOT / "docs" / "figures" / "black-dog-dark.svg",
)
RUNS = ROOT / "runs" / "gallery"
SENTENCE, CHOSEN = "the black dog sings", "noir"
# A row has links to at most so many words, and only to those above this multiple of uniform (docs/design-pages.md).
LINKS, ABOVE = 3, 1.5
# In units of the picture, which is shown at 0.75 pixels a unit on a telephone, and at 1.2 beside the first sentence.
WIDTH, HEIGHT, COLUMN = 480, 300, 120
TOP, BOTTOM, THICKEST = 80, 218, 15
NAMES = ("paper", "ink", "query", "key", "weight")


class Readings(NamedTuple):
    """The weights of one translation.

    Args:
        source: its words.
        target: the words of its translation.
        weights: the mean weights of all heads, from a row for each target word to a column for each source word.
    """

    source: list[str]
    target: list[str]
    weights: list[list[float]]


def read(folder: Path) -> Readings:
    """Return the cross-attention of the sentence in a run, without the row that ends the translation."""
    (cross,) = (part for name, part in attent.load(folder).map(SENTENCE).items() if "cross" in name)
    source, target = ([label.strip() for label in labels] for labels in (cross.columns, cross.rows[:-1]))
    rows = cross.weights[0].mean(0)[:-1].tolist()
    return Readings(source, target, [[round(weight, 4) for weight in row] for row in rows])


def links(row: list[float]) -> dict[int, float]:
    """Return the weights of a row that are drawn, by column, the largest first."""
    strongest = sorted(range(len(row)), key=lambda column: -row[column])[:LINKS]
    return {column: row[column] for column in strongest if row[column] > ABOVE / len(row)}


def draw(readings: Readings, *, dark: bool | None = None) -> str:
    """Return the picture as SVG, for light or dark pages; by default, the system's scheme decides."""
    chosen = readings.target.index(CHOSEN)
    column, weight = next(iter(links(readings.weights[chosen]).items()))
    title = f"{' '.join(readings.source)} → {' '.join(readings.target)}"
    described = "; ".join(
        f"{readings.target[row]}: " + ", ".join(f"{readings.source[to]} {given:.2f}" for to, given in found.items())
        for row, found in enumerate(map(links, readings.weights))
    )
    parts = [
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        *curves(readings, chosen),
        *words(readings.source, TOP - 12, column, "key"),
        *words(readings.target, BOTTOM + 28, chosen, "query"),
        label(center(column), TOP - 56, "key", "key"),
        label(center(chosen), BOTTOM + 70, "query", "query"),
        label(center(chosen) + 14, BOTTOM - 46, "weight", "weight", "start"),
        label(center(chosen) + 14, BOTTOM - 22, f"{weight:.2f}", "weight", "start"),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="black-dog" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f"<title>{escape(title)}</title><desc>Thickness is the weight. {escape(described)}.</desc>"
        f"<style>\n{styles(dark)}</style>{''.join(parts)}</svg>\n"
    )


def center(place: int) -> float:
    """Return where the word of a column is centered."""
    return (place + 0.5) * COLUMN


def curves(readings: Readings, chosen: int) -> Iterator[str]:
    """Yield a line for each link, that of the chosen word last; the thickness is the weight."""
    rows = sorted(range(len(readings.target)), key=lambda row: row == chosen)
    for row in rows:
        for column, weight in links(readings.weights[row]).items():
            above, below, half = center(column), center(row), (TOP + BOTTOM) / 2
            kind = "link" if row == chosen else "link other"
            yield (
                f'<path class="{kind}" stroke-width="{weight * THICKEST:.1f}" '
                f'd="M{above:g} {TOP}C{above:g} {half:g} {below:g} {half:g} {below:g} {BOTTOM}"/>'
            )


def words(texts: list[str], y: float, chosen: int, role: str) -> Iterator[str]:
    """Yield the words of a row, the chosen one in a frame."""
    for place, text in enumerate(texts):
        if place == chosen:
            left, top = center(place) - 52, y - 28
            yield f'<rect class="frame {role}" x="{left:g}" y="{top:g}" width="104" height="40" rx="6"/>'
        kind = "word chosen" if place == chosen else "word"
        yield f'<text class="{kind}" x="{center(place):g}" y="{y:g}">{escape(text)}</text>'


def label(x: float, y: float, text: str, role: str, anchor: str = "middle") -> str:
    """Return a small text in the color of a role."""
    return f'<text class="label {role}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def styles(dark: bool | None) -> str:
    """Return the style sheet, whose colors are those of the palette."""
    rules = [colors(dark=bool(dark))]
    if dark is None:
        rules.append(f"@media (prefers-color-scheme: dark) {{\n{colors(dark=True)}\n}}")
    return "\n".join(
        [
            '.black-dog{font-family:system-ui,"Noto Sans",sans-serif;max-width:100%;height:auto}',
            ".black-dog .word{font-size:27px;text-anchor:middle}.black-dog .chosen{font-weight:600}",
            ".black-dog .label{font-size:20px;stroke-width:5px;paint-order:stroke;font-variant-numeric:tabular-nums}",
            ".black-dog .link,.black-dog .frame{fill:none}.black-dog .frame{stroke-width:2.5px}",
            ".black-dog .frame.key{stroke-dasharray:7 5}.black-dog .other{opacity:.3}",
            *rules,
            "",
        ]
    )


def colors(*, dark: bool) -> str:
    """Return the rules with colors."""
    paper, ink, query, key, weight = (color(name, dark=dark) for name in NAMES)
    roles = {"query": query, "key": key, "weight": weight}
    return "".join(
        [
            f".black-dog .paper{{fill:{paper}}}.black-dog .word{{fill:{ink}}}.black-dog .label{{stroke:{paper}}}",
            f".black-dog .link{{stroke:{weight}}}",
            *(f".black-dog .label.{role}{{fill:{value}}}" for role, value in roles.items()),
            *(f".black-dog .frame.{role}{{stroke:{value}}}" for role, value in roles.items() if role != "weight"),
        ]
    )


def main() -> None:
    """Write the picture, and the weights if they are missing."""
    if not READINGS.exists():
        with new_file(READINGS) as file:
            values = read(run(PHRASES, RUNS))._asdict()
            file.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    readings = Readings(**json.loads(READINGS.read_text(encoding="utf-8")))
    for path, dark in ((PICTURE, None), (DARK_PICTURE, True)):
        with new_file(path) as file:
            file.write_text(draw(readings, dark=dark), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
