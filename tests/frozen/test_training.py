"""Training: it begins as it began, and goes on from old checkpoints as the package that wrote them would have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

GOING_ON = ("pairs", "bahdanau", "blanks", "texts", "lines", "unfinished")
ALL = ("dates", "pairs", "bahdanau", "luong", "none", "blanks", "lines", "texts", "vectors", "pictures")
# Updates after an old checkpoint, and from the beginning.
MORE, FEW = 4, 3


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model.safetensors")


def tolerances(has_extension: bool) -> dict[str, float]:
    """With other registers, or without the extension, dropout draws other numbers.

    A few updates do not carry these far.
    """
    return (
        {"relative": 1e-3, "absolute": 5e-5}
        if torch.backends.cpu.get_cpu_capability() == "AVX512" and has_extension
        else {"relative": 0.1, "absolute": 0.05}
    )


def last_checkpoint(run: Path) -> Path:
    return max((run / "checkpoints").iterdir(), key=lambda path: int(path.name))


def summary(tensors: dict[str, torch.Tensor]) -> dict[str, list[float]]:
    """Of each tensor the mean, the mean of absolute values, and the last number."""
    return {
        name: [float(f.mean()), float(f.abs().mean()), float(f.flatten()[-1])] for name, f in sorted(tensors.items())
    }


@pytest.mark.parametrize("name", GOING_ON)
@pytest.mark.parametrize("way", ["as it is", "without the extension"])
def test_an_old_checkpoint_goes_on(attent, golden, internals, monkeypatch, copied, name: str, way: str) -> None:
    tight = internals.has_extension() or way != "as it is"
    if way == "without the extension":
        internals.without_extension(monkeypatch)
    run = copied(name)
    update = int(last_checkpoint(run).name)
    attent("train", "--resume", run, "--updates", update + MORE)
    assert int(last_checkpoint(run).name) == update + MORE
    reached = load_file(last_checkpoint(run) / "model.safetensors")
    golden.check(f"{name}: {MORE} updates later, {way}", summary(reached), **tolerances(tight))
    outcome = json.loads((run / "config.json").read_text(encoding="utf-8"))["training"]["outcome"]
    golden.check(f"{name}: loss {MORE} updates later, {way}", outcome["loss"], **tolerances(tight))


@pytest.mark.parametrize("name", ["pairs", "bahdanau", "blanks"])
def test_in_one_go_or_in_two_bit_for_bit(attent, copied, tmp_path: Path, name: str) -> None:
    whole = copied(name)
    update = int(last_checkpoint(whole).name)
    attent("train", "--resume", whole, "--updates", update + MORE)
    whole.rename(tmp_path / "whole")
    halves = copied(name)
    for updates in (1, MORE):
        attent("train", "--resume", halves, "--updates", update + updates)
    for path in sorted(last_checkpoint(tmp_path / "whole").glob("*.safetensors")):
        first, second = load_file(path), load_file(last_checkpoint(halves) / path.name)
        assert first.keys() == second.keys()
        assert all(torch.equal(tensor, second[key]) for key, tensor in first.items()), path.name


@pytest.mark.parametrize("name", ALL)
def test_training_begins_as_it_began(
    attent, golden, internals, request: pytest.FixtureRequest, frozen_folder: Path, tmp_path: Path, name: str
) -> None:
    run, tight = tmp_path / name, internals.has_extension()
    what = f"{request.getfixturevalue('cldr')}: dates" if name == "dates" else name
    attent("train", "--config", f"settings/{name}.toml", "--updates", FEW, "--out", run)
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    golden.check(f"{what}: weights after {FEW}", summary(weights(run)), **tolerances(tight))
    golden.check(f"{what}: loss after {FEW}", config["training"]["outcome"]["loss"], **tolerances(tight))
    if name != "dates":
        golden.check(
            f"{name}: digests",
            {key: value for key, value in config["digests"].items() if not key.endswith(".safetensors")},
        )
    for file in sorted(run.glob("*tokenizer*")):
        assert file.read_bytes() == (frozen_folder / "runs" / name / file.name).read_bytes() or name == "dates", (
            file.name
        )


CHANGES = (
    "optimizer=adam training.weight_decay=0.1 training.schedule=noam training.learning_rate=1",
    "accumulate=2 training.clip=0.5 training.schedule=cosine training.averaging=last training.last_every=1",
    "label_smoothing=0 training.schedule=linear model.norm=post model.position=alibi model.activation=gelu",
)


def test_other_settings_of_training(attent, golden, internals, frozen_folder: Path, tmp_path: Path) -> None:
    for number, changes in enumerate(CHANGES):
        run, tight = tmp_path / str(number), internals.has_extension()
        options = [word for change in f"training.{changes}".split() for word in ("--set", change)]
        attent("train", "--config", "settings/pairs.toml", "--updates", FEW, "--out", run, *options)
        golden.check(f"training.{changes}", summary(weights(run)), **tolerances(tight))
