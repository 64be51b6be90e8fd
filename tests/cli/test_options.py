"""Every command that runs a model takes a device, and every command that reads a run takes its code where asked to."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from typer.main import get_command

from attent.cli import options
from attent.cli.app import app
from attent.cli.app import run as command
from attent.errors import DeviceError
from attent.runs.config import CONFIG
from attent.tasks.recipe import follow
from attent.tasks.settings import read

COMPUTES = {
    "translate",
    "fill",
    "generate",
    "classify",
    "score",
    "align",
    "evaluate",
    "show",
    "explore",
    "walk",
    "train",
    "demo",
    "ablate",
    "serve",
    "bench",
}
READS = (COMPUTES - {"demo"}) | {"average", "export", "vectors", "describe", "quantize"}


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
    commands = {
        name: {option for parameter in item.params for option in parameter.opts}
        for name, item in group.commands.items()
    }  # pyright: ignore[reportAttributeAccessIssue]
    assert {name for name, names in commands.items() if "--device" in names} == COMPUTES
    assert {name for name, names in commands.items() if "--trust-code" in names} == READS


@pytest.mark.parametrize(
    "words",
    [
        ["translate", "RUN", "fr | 3 mars 2026"],
        ["score", "RUN", "PAIRS"],
        ["align", "RUN", "PAIRS"],
        ["align", "RUN", "--gold", "dates"],
        ["evaluate", "RUN"],
        ["show", "RUN", "fr | 3 mars 2026"],
        ["walk", "RUN", "fr | 3 mars 2026"],
        ["describe", "RUN"],
        ["average", "RUN"],
        ["vectors", "RUN", "--out", "OUT.txt"],
        ["train", "--resume", "RUN", "--updates", "3"],
        [
            "train",
            "--corpus",
            "dates",
            "--init-from",
            "RUN",
            "--out",
            "OUT",
            "--updates",
            "1",
            "--set",
            "dates.training_pairs=8",
        ],
    ],
    ids=lambda words: "-".join(word for word in words if word.islower())[:20],
)
def test_code_is_imported_only_where_it_is_trusted(
    stranger: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
) -> None:
    monkeypatch.syspath_prepend(str(stranger.parent))
    monkeypatch.delitem(sys.modules, "stranger_code", raising=False)
    mark = stranger.parent / "imported"
    mark.unlink(missing_ok=True)
    replacements = {"RUN": str(stranger), "PAIRS": str(stranger.parent / "pairs.tsv"), "OUT": str(tmp_path / "out")}
    named = [replacements["OUT"] + ".txt" if word == "OUT.txt" else replacements.get(word, word) for word in words]
    if "--init-from" in words:
        # the vocabulary is the other run's
        named = ["train", "--config", str(_settings(tmp_path)), *named[3:]]
    assert command(named) == 2
    assert (
        "would import and run the module stranger_code; trust_code=True (--trust-code) allows it"
        in capsys.readouterr().err
    )
    assert not mark.exists()
    assert command([*named, "--trust-code"]) in (0, 2)
    assert "attent:" not in capsys.readouterr().err
    assert mark.exists()


@pytest.mark.parametrize(
    "words", [["serve", "--languages", "en:de", "--port", "0"], ["quantize"]], ids=lambda words: words[0]
)
def test_code_is_not_imported_to_serve_or_to_quantize(
    stranger: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.syspath_prepend(str(stranger.parent))
    monkeypatch.delitem(sys.modules, "stranger_code", raising=False)
    (stranger.parent / "imported").unlink(missing_ok=True)
    assert command([words[0], str(stranger), *words[1:]]) == 2
    assert "would import and run the module stranger_code" in capsys.readouterr().err
    assert not (stranger.parent / "imported").exists()


def _settings(folder: Path) -> Path:
    """Dates as those of the run, of no model."""
    table = (
        'locales = ["en", "fr"]\ntraining_pairs = 64\nvalidation_pairs = 8\nheld_out_dates = 20\nheld_out_pairs = 8\n'
    )
    file = folder / "settings.toml"
    file.write_text(
        f"[dates]\n{table}held_out_combinations = 2\n[training]\nupdates = 1\nbatch_pairs = 8\n", encoding="utf-8"
    )
    return file


@pytest.mark.parametrize(
    "words",
    [
        ["translate", "nowhere", "a"],
        ["fill", "nowhere", "[MASK]"],
        ["generate", "nowhere", "a"],
        ["classify", "nowhere", "a"],
        ["score", "nowhere", "-"],
        ["align", "nowhere", "-"],
        ["show", "nowhere", "a"],
        ["explore", "nowhere"],
        ["train", "--train", "nowhere.tsv"],
        ["train", "--resume", "nowhere"],
        ["demo", "--out", "nowhere"],
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_a_device_that_is_not_there_is_said_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.setattr("attent.devices.devices", lambda: ["cpu"])
    assert command([*words, "--device", "cuda:7"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1
    assert errors[0].startswith("attent: this machine has no device 'cuda:7': there is cpu")
    assert command([*words, "--device", "gpu"]) == 2
    assert "unknown device 'gpu'" in capsys.readouterr().err


def test_settings_name_the_device_that_is_not_there(
    tmp_path: Path, settings_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("attent.devices.devices", lambda: ["cpu"])
    file = tmp_path / "gpu.toml"
    file.write_text(settings_file.read_text(encoding="utf-8") + 'device = "cuda"\n', encoding="utf-8")
    words = ["train", "--config", str(file), "--out", str(tmp_path / "run")]
    assert command(words) == 2
    assert "this machine has no device 'cuda'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    # the command line comes before
    assert command([*words, "--device", "cpu"]) == 0


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
    with pytest.raises(DeviceError):
        options.device_of("mps")
