"""attent calibrate, and attent translate --confidence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import attent as package
from attent.runs.config import read_config
from attent.runs.snapshot import snapshot, stamp_of
from attent.tasks.translation.calibration import CONFIDENCE, Calibration
from attent.tasks.translation.confidence import Confidence
from attent.tasks.translation.translator import load

# how `translate` ends where a line has no usable translation
UNUSABLE = 2


@pytest.fixture
def run(run_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(run_folder, tmp_path / "run")


@pytest.fixture
def pairs(run: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Lines and references, of which every third is not the run's own translation."""
    lines = [f"en | {month}/{day}/{1900 + 3 * day}" for month in range(1, 7) for day in range(1, 13)]
    texts = load(run).translate(lines)
    files = tmp_path / "lines.en", tmp_path / "lines.de"
    files[0].write_text("\n".join(lines))
    files[1].write_text("\n".join("9" if number % 3 else text for number, text in enumerate(texts)))
    return files


def test_a_run_is_calibrated_and_tells_its_confidence(attent, refused, run: Path, pairs: tuple[Path, Path]) -> None:
    hint = "confidence needs a run calibrated with its current weights: attent calibrate RUN --source FILE "
    for option in (("--confidence", "--format", "jsonl"), ("--minimum-confidence", "0.5")):
        assert refused("translate", run, "en | 3/3/2026", *option).startswith(hint)
    done = attent("calibrate", run, "--source", pairs[0], "--target", pairs[1])
    assert (done.code, done.err) == (0, [f"translating 72 lines of {pairs[0]}"])
    assert [line.split()[0] for line in done.out] == ["usable:", "sentences", "words"]
    assert Calibration.model_validate_json((run / CONFIDENCE).read_text()) == package.load(run).calibration
    done = attent("translate", run, pairs[0], "--format", "jsonl", "--confidence", "--n-best", 2, "--beam", 2)
    best, other = json.loads(done.out[0])["translations"]
    assert 0 < best["confidence"] < 1 and "confidence" not in other
    assert [word for word, _ in best["words"]] == best["text"].split() and isinstance(best["warnings"], list)
    # a server reads the copy of the folder
    with snapshot(run, stamp_of(run)) as copy:
        assert load(copy).calibration == load(run).calibration


def test_lines_below_the_minimum_are_written_as_they_are(attent, run: Path, pairs: tuple[Path, Path]) -> None:
    attent("calibrate", run, "--source", pairs[0], "--target", pairs[1])
    translator, lines = load(run), pairs[0].read_text().splitlines()
    items = [n_best[0] for n_best in translator.search(lines)]
    values = [item.confidence if item else 0.0 for item in Confidence.of(translator, items)]
    middle = sorted(values)[len(values) // 2]
    assert 0 < sum(value < middle for value in values) < len(values)
    expected = [line if value < middle else item.text for line, value, item in zip(lines, values, items, strict=True)]
    done = attent("translate", run, pairs[0], "--minimum-confidence", middle)
    assert (done.code, done.out) == (UNUSABLE, expected)
    messages = [line for line in done.err if "below" in line]
    assert messages == [
        f"line {number + 1}: not translated: confidence {value:g} is below {middle:g}"
        for number, value in enumerate(values)
        if value < middle
    ]
    done = attent("translate", run, f"{lines[0]}\nbanana\n", "--minimum-confidence", 1, "--format", "jsonl")
    low, refused, *_ = map(json.loads, done.out)
    assert low["translations"][0]["text"] == lines[0] and low["translations"][0]["score"] is None
    assert low["error"] == f"not translated: confidence {low['translations'][0]['confidence']:g} is below 1"
    assert "confidence" not in refused["translations"][0] and "year" in refused["error"]


def test_options_that_do_not_go_together(refused, run: Path, tmp_path: Path) -> None:
    assert refused("translate", run, "text", "--confidence") == "--confidence goes with --format jsonl"
    page = tmp_path / "page.html"
    page.write_text("<p>text</p>")
    out = ("--out", tmp_path / "out.html", "--minimum-confidence", "0.5")
    assert refused("translate", run, page, *out) == ".html is a document: omit --minimum-confidence"


def test_a_calibration_belongs_to_the_weights(attent, refused, run: Path, pairs: tuple[Path, Path]) -> None:
    few = pairs[0].with_name("few")
    few.write_text("en | 3/3/2026\n")
    done = attent("calibrate", run, "--source", few, "--target", few)
    assert done.code == 2 and done.err[-1].startswith("attent: confidence needs at least 50 pairs")
    assert not (run / CONFIDENCE).exists()
    attent("calibrate", run, "--source", pairs[0], "--target", pairs[1])
    table = json.loads((run / CONFIDENCE).read_text())
    assert table["weights"] == read_config(run).digests["model.safetensors"]
    (run / CONFIDENCE).write_text(json.dumps(table | {"weights": "0" * 64}))
    # other weights translate, but have no confidence
    assert attent("translate", run, "en | 3/3/2026").err[0].startswith("line 1: the answer ")
    assert "attent calibrate" in refused("translate", run, "en | 3/3/2026", "--minimum-confidence", "0.5")
    (run / CONFIDENCE).write_text(json.dumps(table | {"mean": [0]}))
    assert "confidence.json is damaged" in refused("translate", run, "en | 3/3/2026")
