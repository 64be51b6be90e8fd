import hashlib
import json
from pathlib import Path
from shutil import copytree

import pytest

from attent.errors import ArgumentError, RunError, UnknownNameError
from attent.formats import exporting
from attent.formats.exporting import export, folder_of, load
from attent.formats.manifest import MANIFEST, Manifest, StateTensor, identity, read, write
from attent.runs.config import CONFIG, read_config
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


@pytest.fixture
def exported(run_folder: Path, tmp_path: Path) -> Path:
    copytree(run_folder, tmp_path / "run")
    folder = tmp_path / "run" / "export" / "onnx"
    folder.mkdir(parents=True)
    state = [StateTensor(name="state.length", side="neither", is_constant=False)]
    write(Manifest(engine="onnx", run=identity(tmp_path / "run"), longest=7, state=state), folder)
    return tmp_path / "run"


def test_what_is_written_is_read(exported: Path) -> None:
    result = read(exported / "export" / "onnx", "onnx", exported)
    assert (result.longest, result.state[0].side, result.quantization) == (7, "neither", None)
    assert set(result.run) == {"model", "model.safetensors", "source.tokenizer.json", "target.tokenizer.json"}


def test_an_export_of_other_weights_or_for_another_engine_is_refused(exported: Path) -> None:
    folder, weights = exported / "export" / "onnx", exported / "model.safetensors"
    with pytest.raises(ArgumentError, match="is for the engine onnx, not ctranslate2"):
        read(folder, "ctranslate2", exported)
    with pytest.raises(ArgumentError, match=r"contains no export; create one with attent export .* --out .*nowhere"):
        read(exported / "nowhere", "onnx", exported)
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    expected = rf"state of .*run \(model.safetensors changed\); recreate it with attent export {exported} --to onnx"
    with pytest.raises(ArgumentError, match=expected):
        read(folder, "onnx", exported)
    weights.unlink()
    with pytest.raises(RunError, match=r"model.safetensors cannot be read"):
        identity(exported)


@pytest.mark.parametrize("content", ["{", "{}", '{"engine": "onnx", "run": {}, "surprise": 1}'])
def test_a_damaged_manifest_is_named(exported: Path, content: str) -> None:
    (exported / "export" / "onnx" / MANIFEST).write_text(content)
    with pytest.raises(RunError, match=r"export.json is damaged, or was written by a newer attent"):
        read(exported / "export" / "onnx", "onnx", exported)


def test_what_later_versions_may_be_set_to_changes_no_identity(exported: Path) -> None:
    def hashed(settings: object) -> str:
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    assert identity(exported)["model"] == hashed(read_config(exported).model.model_dump(mode="json"))
    file = exported / CONFIG
    config = json.loads(file.read_text(encoding="utf-8"))
    # a run of before there was a choice of positions
    del config["model"]["position"]
    file.write_text(json.dumps(config), encoding="utf-8")
    assert identity(exported)["model"] == hashed(config["model"])
