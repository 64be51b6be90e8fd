import hashlib
import json
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from attent.errors import ArgumentError, RunError, UnknownNameError
from attent.formats import exporting
from attent.formats.exporting import MANIFEST, export, identity
from attent.runs.config import CONFIG, read_config


class Engine:
    """Stands in for a module that knows an engine."""

    def __init__(self) -> None:
        self.fails = False

    def write(self, run: object, name: str, folder: Path, quantization: str | None) -> dict[str, Any]:
        (folder / "weights").write_text("0")
        if self.fails:
            raise ArgumentError("it cannot be expressed")
        return {"longest": 7, "versions": {"engine": "1.2"}}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    built = Engine()
    monkeypatch.setattr(exporting, "import_module", lambda name: built)
    return built


@pytest.fixture
def copied(run_folder: Path, tmp_path: Path) -> Path:
    return copytree(run_folder, tmp_path / "run")


def test_an_export_lies_in_the_run_and_is_replaced_by_the_next(engine: Engine, copied: Path) -> None:
    for quantization in (None, "int8"):
        folder = export(copied, "onnx", quantization=quantization)
        assert folder == copied / "export" / "onnx"
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        # the key of the file keeps its former spelling
        assert manifest["quantisation"] == quantization
        assert (manifest["engine"], manifest["longest"], manifest["versions"]["engine"]) == ("onnx", 7, "1.2")
        assert manifest["run"] == identity(copied)
    assert sorted(path.name for path in folder.iterdir()) == ["export.json", "weights"]


def test_an_export_may_lie_elsewhere_but_takes_no_others_place(engine: Engine, copied: Path, tmp_path: Path) -> None:
    assert export(copied, "onnx", tmp_path / "there") == tmp_path / "there"
    with pytest.raises(RunError, match="run already exists and is not an export"):
        export(copied, "onnx", copied)


def test_one_that_fails_leaves_the_older_as_it_was(engine: Engine, copied: Path) -> None:
    folder = export(copied, "onnx")
    before = (folder / MANIFEST).read_bytes()
    engine.fails = True
    with pytest.raises(ArgumentError, match="cannot be expressed"):
        export(copied, "onnx")
    assert (folder / MANIFEST).read_bytes() == before
    assert [path.name for path in folder.parent.iterdir()] == ["onnx"]


def test_no_such_engine() -> None:
    with pytest.raises(UnknownNameError, match="unknown engine 'onx'; did you mean 'onnx'"):
        export(Path("run"), "onx")


def test_a_run_without_weights_has_no_identity(copied: Path) -> None:
    assert set(identity(copied)) == {"model", "model.safetensors", "source.tokenizer.json", "target.tokenizer.json"}
    (copied / "model.safetensors").unlink()
    with pytest.raises(RunError, match=r"model.safetensors cannot be read"):
        identity(copied)


def test_what_later_versions_may_be_set_to_changes_no_identity(copied: Path) -> None:
    def hashed(settings: object) -> str:
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    assert identity(copied)["model"] == hashed(read_config(copied).model.model_dump(mode="json"))
    file = copied / CONFIG
    config = json.loads(file.read_text(encoding="utf-8"))
    # a run of before there was a choice of positions
    del config["model"]["position"]
    file.write_text(json.dumps(config), encoding="utf-8")
    assert identity(copied)["model"] == hashed(config["model"])
