from __future__ import annotations

from pathlib import Path

import compare
import pytest
from _report import Report
from comparison import parts
from comparison.results import ModelComparison
from comparison.trainings import Options

from attent.errors import AttentError

MACHINE = {"processor": "one", "threads": 1, "python": "3", "torch": "2"}
REFUSED = {
    "length --models rnn --out new": "unknown model 'rnn'",
    "length --out .": "is not empty and contains no comparison",
    "scores --scores=": "names to compare must be separated by commas, got ','",
    "scores --scores local": "unknown score 'local'",
    "scores --scores no_such_module:Part --out new": "score 'no_such_module:Part' cannot be imported",
    "scores --minutes 0": "--minutes must be > 0, got 0",
    "scores --valid pairs.tsv --out new": "--valid goes with --train",
    "scores --train - --out new": "a comparison reads its pairs for each training",
    "scores --train no.tsv --out new": "no.tsv cannot be read",
    "normalizers --normalizers soft --out new": "unknown normalizer 'soft'; did you mean 'softmax'?",
}


def test_the_table_is_printed_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requests: list[tuple[Options, str]] = []

    def compare_parts(options: Options, slot: str, *, say) -> ModelComparison:
        requests.append((options, slot))
        return ModelComparison("scores", Report("Scores", MACHINE, []), [])

    monkeypatch.setattr(parts, "compare", compare_parts)
    out = tmp_path / "out"
    compare.run(["scores", "--scores", "dot, local-m", "--minutes", "0.5", "--out", str(out)])
    assert requests == [(Options(out, minutes=0.5, parts=["dot", "local-m"]), "scores")]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "## Scores"
    command = f"`scripts/bench compare scores --scores 'dot, local-m' --minutes 0.5 --out {out}`"
    assert command in printed
    assert command in (out / "scores.md").read_text(encoding="utf-8").splitlines()
    assert {path.name for path in out.iterdir()} == {"scores.md", "scores.json"}


@pytest.mark.parametrize(("command", "message"), REFUSED.items())
def test_a_wrong_option_is_refused(command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a file").touch()
    with pytest.raises(AttentError) as refused:
        compare.run([part if part != "--scores=" else "--scores=," for part in command.split()])
    assert message in str(refused.value)
