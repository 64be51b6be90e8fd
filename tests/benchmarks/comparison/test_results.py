import json
import math
from pathlib import Path

import pytest
from _report import Column, Report, ResultTable
from comparison import results
from comparison.results import Figure, ModelComparison, Point, Series, draw, plot

from attent.errors import AttentError, RunError
from attent.views.palette import color

MACHINE = {"processor": "Abacus", "cores": 2, "threads": 1, "python": "3.11", "torch": "2.13", "system": "Linux"}

ONE = [Series("one", [Point(1.0, 2.0, 1.5, 2.5), Point(4.0, 8.0)])]
TWO = [Series("RNN", [Point("dot", 9.0, 8.0, 9.5)]), Series("T", [Point("general", 5.0)])]
LINES = Figure("lines", "Lines", "x", "y", ONE, log_x=True, log_y=True)
DOTS = Figure("dots", "Dots", "score", "match", TWO, kind="dots")


@pytest.mark.parametrize("figure", [LINES, DOTS], ids=lambda figure: figure.kind)
def test_a_figure_becomes_a_picture(figure: Figure, tmp_path: Path) -> None:
    from matplotlib.image import imread

    image = imread(draw(figure, tmp_path / "picture.png"))
    assert image.shape[0] > 300 and image.shape[1] > 600
    # something is plot on the white
    assert (image[..., :3].min(-1) < 0.5).mean() > 0.001
    with pytest.raises(RunError, match=r"picture.png"):
        draw(figure, tmp_path / "no" / "picture.png")


def test_short_names_stand_upright_and_of_a_long_one_the_end_is_shown(tmp_path: Path) -> None:
    for names, angle in ((("1", "16"), 0), (("scaled_dot", "dot"), 40)):
        points = [Point(name, 1.0, 0.5, 1.5) for name in names]
        axes = plot(Figure("x", "X", "x", "y", [Series("one", points)], kind="dots")).axes[0]
        assert {tick.get_rotation() for tick in axes.get_xticklabels()} == {angle}
    names = [f"/tmp/{'long/' * 40}runs/{name}" for name in "ab"]
    figure = Figure("runs", "Runs", "run", "BLEU", [Series("BLEU", [Point(name, 1.0) for name in names])], kind="dots")
    labels = [label.get_text() for label in plot(figure).axes[0].get_xticklabels()]
    assert labels == [f"…{name[-27:]}" for name in names]
    # warnings are errors: there is room for the axes
    draw(figure, tmp_path / "runs.png")


POINTS = [Point(1.0, 2.0, 1.5, 2.5, 7, (1.9, 2.1)), Point(3.0, math.nan)]


def result() -> ModelComparison:
    rows = [{"model": "one", "loss": math.nan, "values": {"low": 1.0}}]
    table = ResultTable("Losses", [Column("model", "model"), Column("loss", "loss", ".2f")], rows)
    report = Report("A comparison", MACHINE, [table], ["A note."])
    return ModelComparison("found", report, [Figure("lines", "Lines", "x", "y", [Series("one", POINTS)])])


def test_lines_differ_by_color_marker_and_dash() -> None:
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    series = [Series(name, [Point(1, 2.0), Point(2, 3.0)]) for name in "abcdef"]
    lines = plot(Figure("x", "X", "x", "y", series)).axes[0].get_lines()
    roles = [color(role) for role in ("query", "key", "value", "weight", "ink", "quiet")]
    assert [line.get_color() for line in lines] == roles
    assert [line.get_linestyle() for line in lines[:4]] == ["-", "--", "-.", ":"]
    assert len({line.get_marker() for line in lines}) == len({str(dash) for dash in results.DASHES}) == 6


def test_tables_pictures_and_every_point_are_written(tmp_path: Path) -> None:
    written = result().write(tmp_path / "new")
    assert [path.name for path in written] == ["found.md", "found.json", "lines.png"]
    page = written[0].read_text(encoding="utf-8").splitlines()
    assert (page[0], page[-1]) == ("# A comparison", "![Lines](lines.png)") and "| one |  |" in page
    values = json.loads(written[1].read_text(encoding="utf-8"))
    first, second = values["figures"][0]["series"][0]["points"]
    assert first == {"x": 1.0, "y": 2.0, "low": 1.5, "high": 2.5, "sentences": 7, "by_seed": [1.9, 2.1]}
    assert second["y"] is None
    assert values["tables"][0]["rows"][0] == {"model": "one", "loss": None, "values": {"low": 1.0}}
    assert written[2].read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_are_no_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> Path:
        raise AttentError("pictures need matplotlib")

    monkeypatch.setattr(results, "draw", missing)
    written = result().write(tmp_path)
    assert [path.name for path in written] == ["found.md", "found.json"]
    assert "png" not in written[0].read_text(encoding="utf-8")
