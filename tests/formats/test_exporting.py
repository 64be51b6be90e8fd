from pathlib import Path
from shutil import copytree

import pytest

from attent.errors import ArgumentError, RunError, UnknownNameError
from attent.formats import exporting
from attent.formats.exporting import export, folder_of, load
from attent.formats.manifest import Manifest, read
from attent.search.search import SourceText, Translation


class Engine:
    """Stands in for a module that knows an engine, and for the engine."""

    def __init__(self) -> None:
        self.fails = False

    def write(self, run: object, name: str, folder: Path, quantization: str | None) -> Manifest:
        (folder / "weights").write_text("0")
        if self.fails:
            raise ArgumentError("it cannot be expressed")
        return Manifest(engine="onnx", run={}, quantization=quantization)

    def load(self, folder: Path, *_: object) -> "Engine":
        assert (folder / "weights").is_file()
        return self

    def search(self, texts: list[str], *_: object) -> list[list[Translation]]:
        return [[Translation((), 0.0, 1.0, "no", SourceText(text, text, ()))] for text in texts]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    built = Engine()
    monkeypatch.setattr(exporting, "_module", lambda name: built)
    return built


@pytest.fixture
def copied(run_folder: Path, tmp_path: Path) -> Path:
    return copytree(run_folder, tmp_path / "run")


def test_an_export_lies_in_the_run_and_is_replaced_by_the_next(engine: Engine, copied: Path, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("abc\ndig\n")
    for quantization in (None, "int8"):
        folder, comparison = export(copied, "onnx", quantization=quantization, sample=tmp_path / "lines")
        assert folder == copied / "export" / "onnx"
        assert comparison.counts() == {"lines": 2, "greedy": 2, "beam 5": 2}
        assert load(copied, "onnx") is engine
        assert read(folder, "onnx", copied).quantization == quantization
    # the key of the file keeps its former spelling
    assert '"quantisation": "int8"' in (folder / "export.json").read_text(encoding="utf-8")


def test_an_export_may_lie_elsewhere_but_takes_no_others_place(engine: Engine, copied: Path, tmp_path: Path) -> None:
    assert export(copied, "onnx", tmp_path / "there")[0] == tmp_path / "there"
    assert load(copied, "onnx", tmp_path / "there") is engine
    with pytest.raises(ArgumentError, match="contains no export"):
        load(copied, "onnx")
    with pytest.raises(RunError, match="run already exists and is not an export"):
        export(copied, "onnx", copied)


def test_one_that_fails_leaves_the_older_as_it_was(engine: Engine, copied: Path) -> None:
    folder, _ = export(copied, "onnx")
    before = (folder / "export.json").read_bytes()
    engine.fails = True
    with pytest.raises(ArgumentError, match="cannot be expressed"):
        export(copied, "onnx")
    assert (folder / "export.json").read_bytes() == before
    assert [path.name for path in folder.parent.iterdir()] == ["onnx"]


def test_no_such_engine() -> None:
    with pytest.raises(UnknownNameError, match="unknown engine 'onx'; did you mean 'onnx'"):
        load(Path("run"), "onx")
    assert folder_of(Path("run"), "onnx") == Path("run/export/onnx")
