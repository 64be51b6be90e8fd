import json
import shutil
from pathlib import Path

import pytest

from attent.comparison.runs import compare, share_of_words
from attent.errors import ArgumentError, RunError
from attent.search.settings import SearchSettings
from attent.tasks.translation.evaluation import bleu
from attent.tasks.translation.translator import load

SOURCES = ["abc", "fed", "bad", "face", "cab"]


@pytest.fixture
def files(run_folder: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Lines, and the references that the run translates them to, but for the last."""
    references = load(run_folder).translate(SOURCES)
    (tmp_path / "source.txt").write_text("\n".join(SOURCES), encoding="utf-8")
    (tmp_path / "target.txt").write_text("\n".join([*references[:-1], "other"]), encoding="utf-8")
    return tmp_path / "source.txt", tmp_path / "target.txt"


def test_each_run_is_compared_with_the_first(run_folder: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run_folder, tmp_path / "copy"))
    messages, settings = list[str](), SearchSettings(beam=2)
    more = {"settings": settings, "tokenize": "char", "say": messages.append}
    result = compare([run_folder, copy], *files, tmp_path / "out", **more)
    (table,) = result.report.tables
    first, second = table.rows
    references = files[1].read_text(encoding="utf-8").split("\n")
    translations = load(run_folder).translate(SOURCES, settings)
    assert first["bleu_values"]["score"] == bleu(translations, references, "char").score
    assert (first["run"], second["run"]) == (str(run_folder), str(copy))
    assert "bleu_p" not in first
    assert (second["bleu_difference"], second["chrf_difference"]) == (0, 0)
    assert second["bleu_p"] == second["chrf_p"] == 1.0
    assert (table.title, len(messages)) == ("5 lines of source.txt, beam 2", 2)
    assert [point.x for point in result.figures[0].series[0].points] == [str(run_folder), str(copy)]


def test_what_cannot_be_compared(run_folder: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    copy, out = Path(shutil.copytree(run_folder, tmp_path / "copy")), tmp_path / "out"
    for runs in ([copy], [copy, tmp_path / "x" / ".." / "copy"]):
        with pytest.raises(ArgumentError, match="two or more different runs, got "):
            compare(runs, *files, out)
    with pytest.raises(RunError, match="is not a run folder"):
        compare([copy, tmp_path], *files, out)
    files[1].write_text("one", encoding="utf-8")
    with pytest.raises(ArgumentError, match="got 5 lines and 1 references"):
        compare([copy, run_folder], *files, out)
    assert not out.exists()


def test_runs_that_name_different_languages_are_refused(
    run_folder: Path, files: tuple[Path, Path], tmp_path: Path
) -> None:
    runs = [Path(shutil.copytree(run_folder, tmp_path / target)) for target in ("de", "fr")]
    for run in runs:
        config = json.loads((run / "config.json").read_text(encoding="utf-8"))
        config["corpus"] = {"text": {"train": "a.tsv", "source_language": "en", "target_language": run.name}}
        (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ArgumentError, match=r"same languages: \S+de translates en → de and \S+fr translates en → fr"):
        compare(runs, *files, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_language_that_no_reference_is_in_is_said(run_folder: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    copy, messages = Path(shutil.copytree(run_folder, tmp_path / "copy")), list[str]()
    german, english = ["ein hund rennt", "zwei frauen"], ["a dog runs", "two women"]
    shares = [share_of_words(*sides) for sides in ((german, german), (german, english), (["3"], english))]
    assert shares == [1.0, 0.0, 1.0]
    assert share_of_words(["犬が走る"], ["猫が走る"]) == 0.75
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attent.tasks.translation.translator.Translator.translate", lambda *_: ["un chien court"] * 5)
        result = compare([run_folder, copy], *files, tmp_path / "out", say=messages.append)
    assert messages[1] == (
        f"warning: only 0% of the words written by {run_folder} occur in {files[1]}: was it trained on these languages?"
    )
    assert messages[1] in result.report.notes
