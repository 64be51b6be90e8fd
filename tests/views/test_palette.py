"""The colors of the design: told apart by everybody, and legible."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import attent
from attent.views.palette import color, palette

SOURCE = Path(attent.__file__).parent
ROLES = ("query", "key", "value", "weight")
SCHEMES = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
# Simulations of color blindness at full severity on linear RGB: Machado, Oliveira and Fernandes 2009, table 1.
VISION = {
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
# Linear sRGB to CIE XYZ, white point D65 (IEC 61966-2-1).
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(name: str) -> np.ndarray:
    channels = np.array([int(name[start : start + 2], 16) for start in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* (CIE 15:2004) of linear RGB."""
    ratio = (XYZ @ rgb) / XYZ.sum(1)
    root = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


def contrast(first: str, second: str) -> float:
    """WCAG 2.2, contrast ratio."""
    dim, bright = sorted(float(XYZ[1] @ linear(hex_color)) for hex_color in (first, second))
    return (bright + 0.05) / (dim + 0.05)


@SCHEMES
@pytest.mark.parametrize("vision", VISION)
def test_roles_are_told_apart(vision: str, dark: bool) -> None:
    colors = [lab(np.clip(np.array(VISION[vision]) @ linear(color(role, dark=dark)), 0, 1)) for role in ROLES]
    distances = [float(np.linalg.norm(first - second)) for first, second in itertools.combinations(colors, 2)]
    assert min(distances) >= 28


@SCHEMES
def test_text_and_roles_are_legible_on_paper(dark: bool) -> None:
    for name in (*ROLES, "ink", "quiet"):
        assert contrast(color(name, dark=dark), color("paper", dark=dark)) >= 4.7, name
        assert contrast(color(name, dark=dark), color("raised", dark=dark)) >= 4.5, name


@SCHEMES
def test_the_scale_of_weights_runs_from_its_ground_in_one_direction(dark: bool) -> None:
    lightness = [lab(linear(name))[0] for name in palette(dark=dark)["ramp"]]
    steps = np.diff(lightness)
    assert (steps > 0).all() if dark else (steps < 0).all()
    assert palette(dark=dark)["ramp"][-1] == color("weight", dark=dark)
    if dark:
        # steps of equal lightness
        np.testing.assert_allclose(steps, steps.mean(), atol=0.6)


def test_there_is_no_other_palette() -> None:
    files = [path for ending in ("py", "js", "css", "html") for path in SOURCE.rglob(f"*.{ending}")]
    others = {
        f"{path.relative_to(SOURCE)}: {match}"
        for path in files
        if path.name != "tokens.css"
        for match in re.findall(r"#[0-9a-fA-F]{6}\b|\brgba?\(\d|\bhsl\(", path.read_text(encoding="utf-8"))
    }
    assert not others
