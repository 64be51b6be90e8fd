from pathlib import Path

import pytest

from attent.models.transformer import Transformer
from attent.tasks.translation import task
from attent.tasks.translation.translator import load


def test_one_pair_in_one_line_out(attent, run_folder: Path, tmp_path: Path) -> None:
    pairs = [("fr | mardi 3 mars 2026", "2026-03-03"), ("", ""), ("en | 3/3/26", "no")]
    file = tmp_path / "pairs.tsv"
    file.write_text("\n".join("\t".join(pair) for pair in pairs), encoding="utf-8")
    done = attent("score", run_folder, file)
    assert done.code == 0
    scores = load(run_folder).score(pairs)
    assert done.out == [f"{score.log_probability:.6f}\t{score.tokens}\t{score.per_token:.6f}" for score in scores]
    assert [score.tokens for score in scores] == [11, 1, 3]


def test_a_wrong_line_is_named_after_those_before_it_are_scored(
    attent, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pairs.tsv"
    for text, tabs in (("no tab", 0), ("a\tb\tc", 2)):
        file.write_text(f"a\tb\n{text}\n", encoding="utf-8")
        done = attent("score", run_folder, file)
        assert (done.code, len(done.out)) == (2, 1)
        assert done.err == [f"attent: {file}, line 2: must be source, tab, target, got {tabs} tabs"]
    monkeypatch.setattr(task, "SCORED_LINES", 2)
    monkeypatch.setattr(Transformer, "longest", 16)
    # BOS counts
    file.write_text("a\tb\n" * 3 + f"a\t{15 * '0'}\na\t{16 * '0'}\na\tb\n", encoding="utf-8")
    done = attent("score", run_folder, file)
    assert (done.code, len(done.out)) == (2, 4)
    assert done.err == [f"attent: {file}, line 5: 17 tokens, more than the 16 that this model can read"]
