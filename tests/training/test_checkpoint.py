"""A run that was interrupted, however and whenever, ends with the weights of one that was not."""

import errno
import io
import itertools
import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from attent.attention.backends.heuristics import ROWS, current_row, using_row
from attent.errors import RunError
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.ops.eligibility import processor_class
from attent.ops.onednn import is_faster, prefers_onednn
from attent.runs import durable
from attent.text.batches import Bitext
from attent.text.text import Pair
from attent.text.tokenizer import CharTokenizer
from attent.training.checkpoint import (
    Checkpoints,
    TrainingState,
    latest_checkpoint,
    list_checkpoints,
    read_state,
)
from attent.training.loop import TrainingResult, train
from attent.training.progress import Progress
from attent.training.settings import TrainingSettings

TOKENIZER = CharTokenizer("abcde")
PAIRS = [Pair(text, text[::-1]) for text in ("a", "bc", "deb", "cead", "ba", "e", "dd")]
DATA = Bitext(PAIRS, TOKENIZER, TOKENIZER)
SCORES = {2: 3.0, 4: 2.0, 6: 2.5, 7: 2.75}
NAME = "encoder.layers.0.feed_forward.widen.weight"


class Killed(BaseException):
    """Ends a process that can do nothing about it."""


def make_model() -> Transformer:
    torch.manual_seed(5)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "width": 8, "feed_forward": 5, "heads": 2}
    rates = {"dropout": 0.2, "attention_dropout": 0.1, "position": "learned"}
    return Transformer(TransformerSettings.model_validate(sizes | rates), TOKENIZER.size, TOKENIZER.size)


def make_settings(**values: object) -> TrainingSettings:
    base = {"updates": 7, "batch_pairs": 3, "warmup": 2, "learning_rate": 1e-2, "validate_every": 2}
    return TrainingSettings.model_validate(base | {"precision": "float32", "threads": 1} | values)


def go(
    folder: Path,
    settings: TrainingSettings,
    stream: io.StringIO | None = None,
    at: Callable[[int], object] = lambda update: None,
) -> TrainingResult:
    """Train into a folder, or go on in it; `at` is told the update of every validation."""
    folder.mkdir(exist_ok=True)
    model = make_model()
    checkpoint = latest_checkpoint(folder)
    updates = itertools.count(2 * ((read_state(checkpoint).update if checkpoint else 0) // 2) + 2, 2)

    def validate() -> dict[str, float]:
        update = min(next(updates), settings.updates)
        at(update)
        return {"loss": SCORES[update]}

    progress, checkpoints = Progress(stream or io.StringIO()), Checkpoints(folder, settings)
    return train(model, DATA, settings, validate=validate, progress=progress, checkpoints=checkpoints)


def end(folder: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Every byte of weights and moments that a run ends with, and all of its state but the time."""
    checkpoint = latest_checkpoint(folder)
    files = [folder / "model.safetensors", *sorted(checkpoint.glob("*.safetensors"))]
    state = read_state(checkpoint).model_dump(exclude={"seconds", "loss"})
    return {file.name + file.parent.name * (file.parent == checkpoint): file.read_bytes() for file in files}, state


def test_attention_is_computed_by_the_row_of_the_machine_where_the_run_began(tmp_path: Path) -> None:
    rows: list[tuple[str, bool]] = []

    def record(update: int) -> None:
        rows.append((current_row().name, prefers_onednn()))

    with using_row(replace(ROWS["avx2"], onednn=not is_faster())):
        go(tmp_path / "run", make_settings(updates=4), at=record)
    with using_row(ROWS["baseline"]):
        go(tmp_path / "run", make_settings(updates=6), at=record)
        assert (current_row().name, prefers_onednn()) == ("baseline", is_faster())
    assert rows == [("avx2", not is_faster())] * 3
    state = list_checkpoints(tmp_path / "run")[-1] / "state.json"
    values = json.loads(state.read_text())
    assert values["machine"]["name"] == "avx2"
    assert values["processor"] == processor_class()
    # a checkpoint of before there were rows
    del values["machine"], values["processor"]
    assert TrainingState.model_validate(values).machine == replace(ROWS["amx"], onednn=False)


def interrupt(stop: int, update: int) -> None:
    if update == stop:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"precision": "bfloat16", "schedule": "plateau", "plateau_patience": 0},
        {"averaging": "ema", "accumulate": 2, "optimizer": "adam"},
        {"averaging": "last", "last": 2, "last_every": 1, "keep_best": 0, "schedule": "cosine", "optimizer": "muon"},
        {"batch_pairs": None, "batch_tokens": 9, "patience": 2},
    ],
)
def test_after_ctrl_c_it_goes_on_as_if_nothing_had_happened(tmp_path: Path, values: dict[str, object]) -> None:
    settings = make_settings(**values)
    whole = go(tmp_path / "whole", settings)
    stream = io.StringIO()
    for stop in (2, 4):
        with pytest.raises(KeyboardInterrupt):
            go(tmp_path / "parts", settings, stream, partial(interrupt, stop))
        resume = f"to resume: attent train --resume {tmp_path / 'parts'}"
        assert stream.getvalue().splitlines()[-1] == f"saved after update {stop}; {resume}"
        torch.rand(3)
    parts = go(tmp_path / "parts", settings)
    assert end(tmp_path / "whole") == end(tmp_path / "parts")
    assert (whole.updates, whole.kept, whole.validation) == (parts.updates, parts.kept, parts.validation)


def finished_before(moment: int, folder: Path, settings: TrainingSettings, patched: pytest.MonkeyPatch) -> bool:
    """Train until the moment before a write to disk is waited for; a dead process tidies nothing up."""
    left, sync, remove, unlink = itertools.count(moment - 1, -1), durable.sync, shutil.rmtree, Path.unlink
    alive = True

    def die(path: Path) -> None:
        nonlocal alive
        if not next(left):
            alive = False
            raise Killed
        sync(path)

    patched.setattr(durable, "sync", die)
    patched.setattr(shutil, "rmtree", lambda *a, **k: remove(*a, **k) if alive else None)
    patched.setattr(Path, "unlink", lambda *a, **k: unlink(*a, **k) if alive else None)
    try:
        go(folder, settings)
    except Killed:
        return False
    return True


@pytest.mark.parametrize("interval", [17, pytest.param(3, marks=pytest.mark.slow)])
def test_killed_at_any_moment_it_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval: int
) -> None:
    settings = make_settings(averaging="ema", save_every=3)
    go(tmp_path / "whole", settings)
    expected = end(tmp_path / "whole")
    for moment in range(3, 999, interval):
        folder = tmp_path / f"killed{moment}"
        with monkeypatch.context() as patched:
            if finished_before(moment, folder, settings, patched):
                assert moment > 15
                break
        go(folder, settings)
        assert end(folder) == expected, moment
        assert [path for path in (folder / "checkpoints").iterdir() if not path.name.isdigit()] == []


def test_a_full_disk_leaves_the_checkpoint_before_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make_settings()
    go(tmp_path / "whole", settings)

    def full(path: Path) -> None:
        if "00000004" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    message = "00000004 cannot be written: No space left on device"
    with monkeypatch.context() as patched, pytest.raises(RunError, match=message) as caught:
        patched.setattr(durable, "sync", full)
        go(tmp_path / "full", settings)
    assert "\n" not in str(caught.value)
    assert [path.name for path in (tmp_path / "full" / "checkpoints").iterdir()] == ["00000002"]
    go(tmp_path / "full", settings)
    assert end(tmp_path / "whole") == end(tmp_path / "full")


@pytest.mark.parametrize(
    ("values", "saved_names", "published"),
    [
        ({}, ["00000004", "00000007"], 4),
        ({"keep_best": 0, "keep_last": 3}, ["00000004", "00000006", "00000007"], 7),
        ({"save_every": 3, "keep_last": 2, "keep_best": 2}, ["00000004", "00000006", "00000007"], 4),
    ],
)
def test_the_best_and_the_last_are_kept(
    tmp_path: Path, values: dict[str, object], saved_names: list[str], published: int
) -> None:
    trained = go(tmp_path / "run", make_settings(**values))
    assert [path.name for path in list_checkpoints(tmp_path / "run")] == saved_names
    assert trained.kept == published
    assert trained.validation == {"loss": SCORES[published]}
    published_weights = tmp_path / "run" / "checkpoints" / f"{published:08}" / "model.safetensors"
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == published_weights.read_bytes()


def test_what_may_change_the_last_digits_is_said(tmp_path: Path) -> None:
    go(tmp_path / "run", make_settings(updates=4))
    stream = io.StringIO()
    state = list_checkpoints(tmp_path / "run")[-1] / "state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"torch": "1.0", "processor": "another"}))
    before = torch.get_num_threads()
    go(tmp_path / "run", make_settings(updates=6, threads=2), stream)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)
    changes = (
        f"float32 on 2 threads instead of float32 on 1 thread, torch {torch.__version__} instead of torch 1.0, "
        f"{processor_class()} kernels instead of another kernels"
    )
    assert stream.getvalue().splitlines()[:2] == [
        "resuming after update 4",
        f"warning: with {changes}, weights will differ in their last digits from those of an uninterrupted run",
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished training with its last three checkpoints."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    go(folder, make_settings(keep_last=3))
    return folder


def with_a_stranger(checkpoint: Path) -> None:
    file = checkpoint / "state.json"
    file.write_text(file.read_text().replace("{", '{"sharded": true, "stranger": 1, ', 1))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: (path / "state.json").unlink(), r"state\.json is missing or damaged"),
        (lambda path: (path / "state.json").write_text("{"), r"state\.json is damaged"),
        (lambda path: (path / "state.json").write_text("{}"), r"state\.json is damaged: pace: "),
        (with_a_stranger, r"state\.json is damaged: stranger"),
        (lambda path: (path / "model.safetensors").write_bytes(b"none"), r"model\.safetensors is missing or damaged"),
        (lambda path: (path / "optimizer.safetensors").unlink(), r"optimizer\.safetensors is missing or damaged"),
        (lambda path: shutil.copy(path / "model.safetensors", path / "optimizer.safetensors"), r"00000007 is damaged"),
    ],
)
def test_damage_is_named_in_one_line(
    trained: Path, tmp_path: Path, damage: Callable[[Path], object], says: str
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    damage(latest_checkpoint(tmp_path / "run"))
    with pytest.raises(RunError, match=says) as caught:
        go(tmp_path / "run", make_settings(updates=9))
    assert "\n" not in str(caught.value)
