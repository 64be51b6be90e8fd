import hashlib
import json
from pathlib import Path
from shutil import copytree

import pytest

from attent.errors import ArgumentError, RunError
from attent.formats.manifest import MANIFEST, Manifest, StateTensor, identity, read, write
from attent.runs.config import CONFIG, read_config


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
