"""Every command that runs a model takes a device, and every command that reads a run takes its code where asked to."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fuzzing.mutators import toml
from typer.main import get_command

from attent.cli import options
from attent.cli.app import app
from attent.runs.config import CONFIG
from attent.tasks.recipe import follow
from attent.tasks.settings import read

COMPUTES = {
    "translate",
    "fill",
    "answer",
    "generate",
    "classify",
    "caption",
    "score",
    "align",
    "evaluate",
    "show",
    "explore",
    "walk",
}
COMPUTES |= {"train", "demo", "ablate", "patch", "serve", "calibrate"}
# attent patch reads models of Hugging Face alone
READS = (COMPUTES - {"demo", "patch"}) | {"export", "vectors", "describe", "quantize"}


@pytest.fixture(scope="module")
def stranger(settings_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose config names a module of its own, which leaves a mark when it is imported."""
    folder = tmp_path_factory.mktemp("stranger")
    run = folder / "run"
    # the checkpoints of two validations, to be averaged
    settings = read(settings_file)
    training = settings.training.model_copy(update={"device": "cpu", "validate_every": 1, "keep_best": 2})
    follow(settings.model_copy(update={"training": training}), run)
    config = json.loads((run / CONFIG).read_text(encoding="utf-8"))
    config["model"]["score"] = "stranger_code:Scaled"
    (run / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    code = "from pathlib import Path\nfrom attent.attention.scores.scaled_dot import ScaledDot\n"
    mark = f"Path({str(folder / 'imported')!r}).touch()\nclass Scaled(ScaledDot): pass\n"
    (folder / "stranger_code.py").write_text(code + mark, encoding="utf-8")
    (folder / "pairs.tsv").write_text("fr | 3 mars 2026\t2026-03-03\n", encoding="utf-8")
    return run


def test_each_command_has_them() -> None:
    group = get_command(app)
    items: dict[str, Any] = group.commands  # pyright: ignore[reportAttributeAccessIssue]
    commands = {name: {option for entry in item.params for option in entry.opts} for name, item in items.items()}
    assert {name for name, names in commands.items() if "--device" in names} == COMPUTES
    assert {name for name, names in commands.items() if "--trust-code" in names} == READS


DATE = "fr | 3 mars 2026"


@pytest.mark.parametrize(
    "words",
    [
        ["translate", "RUN", DATE],
        ["score", "RUN", "PAIRS"],
        ["align", "RUN", "PAIRS"],
        ["evaluate", "RUN"],
        ["show", "RUN", DATE],
        ["walk", "RUN", DATE],
        ["describe", "RUN"],
        ["vectors", "RUN", "--out", "TABLE"],
        ["train", "--resume", "RUN", "--updates", "3"],
        ["train", "--config", "DATES", "--init-from", "RUN", "--out", "OUT"],
        ["serve", "RUN", "--languages", "en:de", "--port", "0"],
        ["quantize", "RUN"],
    ],
    ids=lambda words: "-".join(word for word in words if word.islower())[:20],
)
def test_code_is_imported_only_where_it_is_trusted(
    attent, stranger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.syspath_prepend(str(stranger.parent))
    monkeypatch.delitem(sys.modules, "stranger_code", raising=False)
    mark = stranger.parent / "imported"
    mark.unlink(missing_ok=True)
    names = {"RUN": stranger, "PAIRS": stranger.parent / "pairs.tsv", "OUT": tmp_path / "out"}
    sizes = {"training_pairs": 64, "validation_pairs": 8, "held_out_dates": 20, "held_out_pairs": 8}
    dates = {"locales": ["en", "fr"], "held_out_combinations": 2, **sizes}
    names |= {"TABLE": tmp_path / "out.txt", "DATES": tmp_path / "settings.toml"}
    names["DATES"].write_text(toml({"dates": dates, "training": {"updates": 1, "batch_pairs": 8}}), encoding="utf-8")
    named = [names.get(word, word) for word in words]
    says = "would import and run the module stranger_code; if you trust this code, allow it with trust_code=True"
    assert says in attent(*named).err[-1]
    assert not mark.exists()
    if words[0] not in ("serve", "quantize"):
        done = attent(*named, "--trust-code")
        assert done.code in (0, 2) and not any(line.startswith("attent:") for line in done.err)
        assert mark.exists()


COMMANDS = ["translate nowhere a", "fill nowhere [MASK]", "generate nowhere a", "classify nowhere a", "score nowhere -"]
COMMANDS += ["align nowhere -", "show nowhere a", "explore nowhere", "train --train nowhere.tsv"]
COMMANDS += ["train --resume nowhere", "demo --out nowhere"]


def test_a_device_that_is_not_there_is_said_before_anything_is_read(
    attent, refused, tmp_path: Path, settings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attent.devices.devices", lambda: ["cpu"])
    for words in COMMANDS:
        says = refused(*words.split(), "--device", "cuda:7")
        assert says.startswith("this machine has no device 'cuda:7'; available: cpu")
        assert "unknown device 'gpu'" in refused(*words.split(), "--device", "gpu")
    file = tmp_path / "gpu.toml"
    file.write_text(settings_file.read_text(encoding="utf-8") + 'device = "cuda"\n', encoding="utf-8")
    words = ["train", "--config", file, "--out", tmp_path / "run"]
    assert "this machine has no device 'cuda'" in refused(*words)
    assert not (tmp_path / "run").exists()
    # the command line comes before
    assert attent(*words, "--device", "cpu").code == 0


def test_the_device_is_said_unless_it_is_the_cpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("attent.devices.devices", lambda: ["cpu", "cuda:0", "cuda:1"])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: "Example")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    used: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", used.append)
    assert options.device_of("auto") == torch.device("cuda")
    assert options.device_of("cuda:1") == torch.device("cuda", 1)
    assert capsys.readouterr().err == "device: cuda:0 (Example)\ndevice: cuda:1 (Example)\n"
    # where Triton launches its kernels
    assert used == [torch.device("cuda", 1)]
    monkeypatch.setattr("attent.devices.devices", lambda: ["cpu"])
    assert options.device_of("auto") == torch.device("cpu")
    assert capsys.readouterr().err == ""
