from __future__ import annotations

import itertools
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from attent.errors import ArgumentError
from attent.views.architecture import Box, Group, ModelColumn, architecture, svg

NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_the_drawing_is_an_svg_of_every_box_within_its_page(translator, tmp_path: Path) -> None:
    file = tmp_path / "model.svg"
    architecture(translator.model, file, "a <run> & more")
    text = file.read_text(encoding="utf-8")
    assert "prefers-color-scheme:dark" in text
    # it asks nobody
    assert not re.search(r"(href|src|url)\s*[=(]\s*[\"']?(?!#)", text.replace(f'xmlns="{NAMESPACE[1:-1]}"', ""))
    root = ElementTree.fromstring(text)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    texts = [element.text for element in root.iter(f"{NAMESPACE}text")]
    assert {"a <run> & more", "Self-attention", "Attention to the source", "2 ×", "Softmax"} <= set(texts)
    assert f"{sum(parameter.numel() for parameter in translator.model.parameters()):,} parameters" in texts
    for shape in root.iter(f"{NAMESPACE}rect"):
        x, y, across, down = (float(shape.attrib.get(name, 0)) for name in ("x", "y", "width", "height"))
        assert x >= 0 and x + across <= width and y >= 0 and y + down <= height
    for line in root.iter(f"{NAMESPACE}polyline"):
        points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        assert all(0 <= x <= width and 0 <= y <= height for x, y in points)


def test_boxes_of_a_column_do_not_overlap() -> None:
    group = Group(tuple(Box(title, "1 × 2", "norm", skip=2 if title == "c" else 0) for title in "abc"), times=3)
    root = ElementTree.fromstring(svg([ModelColumn("in", (group, Group((Box("d", "", "output"),))), "out")], "t", ""))
    rects = [rect for rect in root.iter(f"{NAMESPACE}rect") if "box" in rect.attrib["class"].split()]
    tops = [float(rect.attrib["y"]) for rect in rects]
    assert all(above + 44 < below for below, above in itertools.pairwise(tops)), "the first box stands lowest"


def test_where_it_cannot_be_drawn(translator, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"must end in \.svg, got 'model\.png'"):
        architecture(translator.model, "model.png")
    with pytest.raises(ArgumentError, match="cannot be written"):
        architecture(translator.model, tmp_path / "nowhere" / "model.svg")
