from __future__ import annotations

import builtins
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from attent.errors import ArgumentError, AttentError
from attent.views.panel import head_panels, panel
from attent.views.picture import drawable, figure, fonts, picture

pytest.importorskip("matplotlib", reason="pictures need matplotlib")

LABELS = ["fr", " ", "α", "я", "سنة", "日", "क", "</s>"]
PANEL = panel(torch.eye(8), LABELS, LABELS, title="layer", reading="row t emits target[t]")


def test_a_png_is_a_picture_of_some_size(tmp_path: Path) -> None:
    from matplotlib.image import imread

    file = tmp_path / "new" / "map.png"
    picture(PANEL, file)
    assert file.read_bytes().startswith(b"\x89PNG")
    pixels = imread(file)
    assert pixels.shape[0] > 150
    assert pixels.shape[1] > 150
    assert pixels.std() > 0.05
    picture(PANEL, tmp_path / "map.svg")
    assert ElementTree.parse(tmp_path / "map.svg").getroot().tag.endswith("svg")


def test_labels_title_and_range() -> None:
    axes, bar = figure(PANEL).axes
    assert axes.get_title(loc="left") == "layer\nrow t emits target[t]"
    assert axes.get_xlabel() == "␣ space"
    assert [text.get_text() for text in axes.get_yticklabels()][:4] == ["fr", "␣", "α", "я"]
    assert axes.get_images()[0].get_clim() == (0.0, 1.0)
    assert bar.get_ylabel() == "weight"
    # weights beyond the usual range widen it
    assert figure(panel(torch.tensor([[-2.0, 3.0]]), "a", "bc")).axes[0].get_images()[0].get_clim() == (-2.0, 3.0)
    drawn = figure(head_panels(torch.rand(3, 2, 5).softmax(-1), "ab", "vwxyz"))
    assert [axes.get_title(loc="left") for axes in drawn.axes if axes.get_images()] == ["head 0", "head 1", "head 2"]


def test_a_character_that_no_font_has_is_written_as_its_code_point() -> None:
    assert drawable("a") == "a"
    # noncharacters will never have a glyph; a Cuneiform sign hardly ever has
    assert drawable("\U00012345") in ("12345", "\U00012345")
    assert fonts("aя")[0] == "DejaVu Sans"


@pytest.mark.slow
def test_nothing_global_is_touched() -> None:
    # asking for the backend would import pyplot
    code = (
        "import torch, matplotlib, sys; from attent.views.panel import panel; from attent.views.picture import figure;"
        "settings = lambda: {name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != 'backend'};"
        "before = settings(); figure(panel(torch.eye(2), 'ab', 'ab'));"
        "assert 'matplotlib.pyplot' not in sys.modules; assert settings() == before"
    )
    folder = Path(__file__).parents[2] / "src"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"must end in \.png or \.svg"):
        picture(PANEL, tmp_path / "map.jpg")
    with pytest.raises(ArgumentError, match="no map to draw"):
        picture({}, tmp_path / "map.png")
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match="cannot be written"):
        picture(PANEL, tmp_path / "file" / "map.png")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without(name: str, *rest: object, **more: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(AttentError, match=r"pip install 'attent\[plot\]'"):
        picture(PANEL, tmp_path / "map.png")
