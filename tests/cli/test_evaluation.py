from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from attent.tasks.fill_mask.task import MaskedLMReport, masked_lm_lines


def test_what_was_left_out_is_said(attent, filling_folder: Path, tmp_path: Path) -> None:
    none, bird = tmp_path / "none", tmp_path / "bird.txt"
    assert attent("evaluate", filling_folder, "--text", none).err[-1].startswith(f"attent: {none} cannot be read: ")
    bird.write_text("bird\n", encoding="utf-8")
    done = attent("evaluate", filling_folder, "--text", bird)
    assert done.err[-1] == f"attent: {bird} has no word that this model knows"
    lines = masked_lm_lines(MaskedLMReport(3, 20, 2, 0, 50.0, 12.345))
    assert lines == [
        "top-1 50.00 %  perplexity 12.35",
        "20 blanks, one at a time, in 3 lines; 2 words that the model does not know left out",
    ]


def test_what_is_held_out_is_judged(attent, classifying_folder: Path) -> None:
    report = json.loads("\n".join(attent("evaluate", classifying_folder, "--json").out))
    assert (report["examples"], report["labels"]) == (2, ["x", "y"])
    assert np.sum(report["confusion"]) == 2
    assert (
        json.loads((classifying_folder / "config.json").read_text())["results"]["validation"]["accuracy"]
        == report["accuracy"]
    )
    assert f"accuracy  {report['accuracy']:6.2f} %" in "\n".join(attent("evaluate", classifying_folder).out)


def test_other_examples_are_judged(attent, classifying_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "b.tsv").write_text("\nsome\tx\n" + "e" * 12 + "\tx\n" + "e" * 11 + "\ty\nno label\n")
    done = attent("evaluate", classifying_folder, "--labelled", tmp_path / "b.tsv")
    assert done.code == 0 and "2 examples" in "\n".join(done.out)
    errors = "\n".join(done.err)
    assert "1 dropped: longer than the 11 tokens, vectors or patches that this model can read (line 3)" in errors
    assert "1 dropped: no tab between text and label (line 5)" in errors

    # a label that the run does not know is refused
    (tmp_path / "b.tsv").write_text("some\tz\n")
    done = attent("evaluate", classifying_folder, "--labelled", tmp_path / "b.tsv")
    assert done.code == 2 and "the run does not know the label 'z'; it knows x, y" in done.err[-1]
    np.savez(tmp_path / "v.npz", x=np.random.rand(2, 5, 3), y=["x", "y"])
    done = attent("evaluate", classifying_folder, "--images", tmp_path / "v.npz")
    assert done.code == 2 and "the run reads texts" in done.err[-1]
