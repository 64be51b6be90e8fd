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
    expected = load(run_folder).score(pairs)
    assert done.out == [
        f"{hypothesis.log_probability:.6f}\t{hypothesis.tokens}\t{hypothesis.per_token:.6f}" for hypothesis in expected
    ]
    assert [hypothesis.tokens for hypothesis in expected] == [11, 1, 3]


@pytest.mark.parametrize(("text", "tabs"), [("no tab", 0), ("a\tb\tc", 2)])
def test_a_line_is_a_pair(attent, run_folder: Path, tmp_path: Path, text: str, tabs: int) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text(f"a\tb\n{text}\n", encoding="utf-8")
    done = attent("score", run_folder, file)
    assert done.code == 2
    # what stands before it is scored
    assert len(done.out) == 1
    assert done.err == [f"attent: {file}, line 2: must be source, tab, target, got {tabs} tabs"]


def test_a_pair_that_is_too_long_is_named_by_its_line(
    attent, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "SCORED_LINES", 2)
    monkeypatch.setattr(Transformer, "longest", 16)
    file = tmp_path / "pairs.tsv"
    # BOS counts
    file.write_text("a\tb\n" * 3 + f"a\t{15 * '0'}\na\t{16 * '0'}\na\tb\n", encoding="utf-8")
    done = attent("score", run_folder, file)
    assert (done.code, len(done.out)) == (2, 4)
    assert done.err == [f"attent: {file}, line 5: 17 tokens, more than the 16 that this model can read"]
