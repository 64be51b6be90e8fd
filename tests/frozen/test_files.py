"""What a run folder holds: files, keys of JSON, tensors with their names, shapes and order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

# Keys that checkpoints have had since.
ADDED = ("machine", "processor")
ALL = ("dates", "pairs", "bahdanau", "luong", "none", "blanks", "lines", "texts", "vectors", "pictures", "unfinished")


def keys_in(value: Any, before: str = "") -> list[str]:
    """Every key of nested tables, in order."""
    if not isinstance(value, dict):
        return []
    return [key for name, inner in value.items() for key in (f"{before}{name}", *keys_in(inner, f"{before}{name}."))]


@pytest.mark.parametrize("name", ALL)
def test_weights_have_their_names_and_their_order(golden, internals, frozen_folder: Path, name: str) -> None:
    run = frozen_folder / "runs" / name
    stored = {key: [*tensor.shape] for key, tensor in sorted(load_file(run / "model.safetensors").items())}
    golden.check(f"{name}: tensors", stored)
    if name != "unfinished":
        model = internals.model(run)
        golden.check(f"{name}: state_dict", {key: [*tensor.shape] for key, tensor in model.state_dict().items()})
        golden.check(f"{name}: parameters", [key for key, _ in model.named_parameters()])


@pytest.mark.parametrize("name", ALL)
def test_a_new_run_has_the_files_of_an_old_one(attent, golden, frozen_folder: Path, tmp_path: Path, name: str) -> None:
    run = tmp_path / name
    attent(
        "train", "--config", f"settings/{'pairs' if name == 'unfinished' else name}.toml", "--updates", 2, "--out", run
    )
    files = sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file())
    golden.check(f"{name}: files", files)
    for file in files:
        if file.endswith(".json"):
            keys = keys_in(json.loads((run / file).read_text(encoding="utf-8")))
            golden.check(f"{name}: keys of {file}", [key for key in keys if key.split(".")[0] not in ADDED])
        elif file.endswith(".jsonl"):
            records = [json.loads(line) for line in (run / file).read_text(encoding="utf-8").splitlines()]
            golden.check(f"{name}: keys of {file}", sorted({key for record in records for key in keys_in(record)}))
        elif "optimizer" in file or "average" in file:
            golden.check(f"{name}: names in {file}", sorted(load_file(run / file)))


@pytest.mark.parametrize("name", ALL)
def test_old_settings_are_read(golden, internals, frozen_folder: Path, name: str) -> None:
    """The settings of a run with every default filled in, as its config keeps them."""
    if name != "unfinished":
        settings = internals.settings((frozen_folder / "settings" / f"{name}.toml").read_text(encoding="utf-8"))
        golden.check(f"{name}: settings", settings.model_dump(mode="json"))
