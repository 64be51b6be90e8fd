from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch

from attent.runs.weights import read_tensors

CHANGES = ("validate_every=2", "keep_best=2", "keep_last=3")
SAVING = ["--updates", 6, *(word for change in CHANGES for word in ("--set", f"training.{change}"))]


@pytest.fixture
def trained(attent, settings_file: Path, tmp_path: Path) -> Path:
    assert attent("train", "--config", settings_file, "--out", tmp_path / "run", "--threads", 1, *SAVING).code == 0
    return tmp_path / "run"


def tensors(run: Path, *names: int) -> list[dict[str, torch.Tensor]]:
    return [read_tensors(run / "checkpoints" / f"{name:08}" / "model.safetensors") for name in names]


@pytest.mark.slow
def test_the_last_are_averaged_and_the_best_given_back(attent, trained: Path) -> None:
    best = (trained / "model.safetensors").read_bytes()
    done = attent("average", trained, "--last", 3)
    assert done.out == [f"mean of the weights after updates 2, 4, 6: {trained}"]
    result = read_tensors(trained / "model.safetensors")
    for name, tensor in result.items():
        torch.testing.assert_close(tensor, torch.stack([item[name] for item in tensors(trained, 2, 4, 6)]).mean(0))
    config = json.loads((trained / "config.json").read_text())
    assert config["training"]["outcome"]["averaged"] == [2, 4, 6]
    assert config["results"] == {}
    digest = hashlib.sha256((trained / "model.safetensors").read_bytes()).hexdigest()
    assert config["digests"]["model.safetensors"] == digest
    assert done.code == 0
    repeated = attent("average", trained)
    assert (repeated.code, len(repeated.out[0].split(","))) == (0, 2)
    assert attent("average", trained, "--best", 1).code == 0
    assert (trained / "model.safetensors").read_bytes() == best


def test_a_mean_needs_its_checkpoints_and_says_how_to_judge_it(
    attent, refused, trained: Path, filling_folder: Path, tmp_path: Path
) -> None:
    before = (trained / "model.safetensors").read_bytes()
    assert refused("average", trained, "--last", 4).startswith(f"{trained} has only 3 of its last")
    assert refused("average", trained, "--best", 3).startswith(f"{trained} has only 2 of its best")
    assert (trained / "model.safetensors").read_bytes() == before
    assert attent("average", trained, "--last", 2).err == [f"to evaluate it: attent evaluate {trained}"]
    filling, translating = tmp_path / "filling", tmp_path / "translating"
    shutil.copytree(filling_folder, filling)
    assert attent("average", filling).err == [f"to evaluate it: attent evaluate {filling} --text FILE"]
    shutil.copytree(trained, translating)
    config = json.loads((translating / "config.json").read_text())
    (translating / "config.json").write_text(json.dumps(config | {"corpus": {"text": {"train": "pairs.tsv"}}}))
    says = f"to evaluate it: attent evaluate {translating} --source FILE --target FILE"
    assert attent("average", translating).err == [says]
