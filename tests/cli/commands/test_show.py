from __future__ import annotations

from pathlib import Path

import pytest

from attent.tasks.translation.translator import BOS_LABEL, EOS_LABEL, load
from attent.views.build_scene import CLS
from attent.views.panel import panel_of
from attent.views.scene import SPECIAL_LABELS
from attent.views.terminal import heat_map

TEXT = "fr | 3 mars 2026"


def test_the_mean_of_the_last_cross_attention_is_shown(attent, run_folder: Path) -> None:
    done = attent("show", run_folder, TEXT)
    assert (done.code, done.out[0]) == (0, "decoder.layers.1.cross_attention, mean over 2 heads")
    run = load(run_folder)
    assert done.out == heat_map(panel_of(run.map(TEXT))).splitlines()
    given = attent("show", run_folder, TEXT, "--translation", "2026-03-05")
    assert given.out == heat_map(panel_of(run.map(TEXT, "2026-03-05"))).splitlines()


def test_special_tokens_are_left_out_if_asked(attent, run_folder: Path, tmp_path: Path) -> None:
    options = ("--translation", "2026", "--kind", "decoder", "--without-special")
    done = attent("show", run_folder, TEXT, *options, "--out", tmp_path / "map.html")
    note = "Without </s>, <s>; the weights left in a row are divided by their sum."
    assert (done.code, done.out[-1]) == (0, note)
    assert note.replace("<", "\\u003c") in (tmp_path / "map.html").read_text(encoding="utf-8")
    drawn = [line for line in done.out if "│" in line]
    # what writes the first digit has read only <s>, and what writes the second, only the first
    assert [line.split()[0] for line in drawn] == ["2", "0", "2", "6"]
    assert drawn[0].endswith("│ sees nothing")
    assert drawn[1].endswith("│ 2 1.00")
    assert {CLS, BOS_LABEL, EOS_LABEL} == {*SPECIAL_LABELS}


def test_another_layer_head_and_kind(attent, run_folder: Path) -> None:
    done = attent("show", run_folder, TEXT, "--kind", "encoder", "--layer", 0, "--head", 1)
    assert done.out[0] == "encoder.layers.0.self_attention, head 1"
    combined = attent("show", run_folder, TEXT, "--head", "all").out
    assert [line for line in combined if "_attention" in line] == [
        f"decoder.layers.1.cross_attention, head {head}" for head in (0, 1)
    ]


@pytest.mark.slow
def test_a_picture_is_drawn_where_asked(attent, run_folder: Path, tmp_path: Path) -> None:
    from attent.cli.commands.show import PICTURES
    from attent.views.picture import FORMATS

    assert PICTURES == FORMATS
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    for name in ("map.png", "map.svg", "map.html"):
        done = attent("show", run_folder, TEXT, "--out", tmp_path / name)
        assert (done.code, done.err) == (0, [f"drawn into {tmp_path / name}"])
        assert (tmp_path / name).stat().st_size > 1000
    html = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert '"cross-attention"' in html and f"<title>{TEXT}</title>" in html


def test_a_run_that_fills_blanks_is_shown(attent, filling_folder: Path, tmp_path: Path) -> None:
    plain = attent("show", filling_folder, "the dog was tired .")
    assert (plain.code, plain.out[0]) == (0, "encoder.layers.0.self_attention, mean over 2 heads")
    assert attent("show", filling_folder, "the dog was tired .", "--without-special").out == plain.out
    done = attent("show", filling_folder, "the dog was [MASK] .", "--out", tmp_path / "map.html")
    assert (done.code, done.out[0]) == (0, "encoder.layers.0.self_attention, mean over 2 heads")
    assert '"self-attention"' in (tmp_path / "map.html").read_text(encoding="utf-8")


def test_words_have_no_space_before_them_and_unknown_ones_are_named(
    attent, filling_folder: Path, run_folder: Path
) -> None:
    done = attent("show", filling_folder, "the Dog was zebra , zebra .", "--head", "all")
    # an unknown word is read in lower case if that is known
    assert (done.code, done.out[-1]) == (0, "Unknown to this run: 'zebra'.")
    rows = [line.split("│")[0].strip() for line in done.out if "│" in line]
    assert rows == ["the", "Dog", "was", "zebra", ",", "zebra", "."] * 2
    assert not any("␣" in line for line in done.out)
    # a run of characters has spaces of its own
    assert attent("show", run_folder, TEXT).out[-1] == "␣ space"
