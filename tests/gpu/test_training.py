"""What is trained on a GPU is what would be trained on the CPU, and goes on on either."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from attent.runs.config import read_config
from attent.runs.durable import LOG
from attent.tasks.recipe import follow, resume
from attent.tasks.settings import RunSettings
from attent.training.checkpoint import latest_checkpoint, read_state
from attent.training.progress import Progress

# an emulated GPU takes many seconds for each
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_tokens")]

TRANSFORMER = {"encoder_layers": 1, "decoder_layers": 2, "width": 8, "feed_forward": 8, "heads": 2, "dropout": 0.0}
DATES = {"locales": ["en", "fr"], "training_pairs": 32, "validation_pairs": 4}
DATES |= {"held_out_dates": 5, "held_out_pairs": 3, "held_out_combinations": 1}
TRAINING = {"updates": 2, "batch_pairs": 8, "warmup": 1, "precision": "float32", "threads": 1}


def settings(device: str, model: dict[str, Any] | None = None, **training: Any) -> RunSettings:
    tables = {"dates": DATES, "model": model or TRANSFORMER, "training": TRAINING | {"device": device} | training}
    return RunSettings.model_validate(tables)


def quiet() -> Progress:
    return Progress(io.StringIO())


def outcome(run: Path) -> dict[str, Any]:
    return read_config(run).training["outcome"]


@pytest.mark.parametrize(
    ("model", "training"),
    [
        (TRANSFORMER | {"position": "rotary", "norm": "pre"}, {"averaging": "ema", "accumulate": 2, "clip": 0.5}),
        (TRANSFORMER | {"score": "additive", "position": "relative_bias"}, {"averaging": "last", "schedule": "noam"}),
        ({"kind": "rnn", "attention": "bahdanau", "width": 8, "embedding_width": 6}, {}),
        ({"kind": "rnn", "attention": "luong", "width": 8, "embedding_width": 6}, {}),
    ],
)
def test_a_training_is_the_one_of_the_cpu(
    gpu: torch.device, tmp_path: Path, model: dict[str, Any], training: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # the loss is that of all updates, not of those since a clock struck
    monkeypatch.setattr("attent.training.progress.RECORD_INTERVAL", math.inf)
    follow(settings("cpu", model, **training), tmp_path / "cpu", progress=quiet())
    follow(settings("cuda", model, **training), tmp_path / "gpu", progress=quiet())
    on_cpu, on_gpu = outcome(tmp_path / "cpu"), outcome(tmp_path / "gpu")
    assert (on_cpu["device"], on_gpu["device"][:7]) == ("cpu", "cuda:0 ")
    assert on_gpu["loss"] == pytest.approx(on_cpu["loss"], rel=1e-4)
    assert on_gpu["validation"]["loss"] == pytest.approx(on_cpu["validation"]["loss"], rel=1e-3)


@pytest.mark.parametrize(("first", "then"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_run_goes_on_on_another_device(gpu: torch.device, tmp_path: Path, first: str, then: str) -> None:
    """With the moments, the means and the place in the data that it had."""
    follow(settings("cpu", updates=4, averaging="ema"), tmp_path / "whole", progress=quiet())
    follow(settings(first, averaging="ema"), tmp_path / "run", progress=quiet())
    state = read_state(latest_checkpoint(tmp_path / "run") or tmp_path)
    assert state.device == first
    assert set(state.random) == {"cpu", first}
    stream = io.StringIO()
    resume(tmp_path / "run", {"updates": 4, "device": then}, progress=Progress(stream))
    assert f"with {then} instead of {first}, weights will differ" in stream.getvalue()
    assert outcome(tmp_path / "run")["validation"]["loss"] == pytest.approx(
        outcome(tmp_path / "whole")["validation"]["loss"], rel=1e-3
    )


def test_the_precision_is_measured_on_the_gpu(gpu: torch.device, tmp_path: Path) -> None:
    """On as many threads as there are: they are not what is measured there."""
    follow(settings("auto", precision="auto", threads="auto"), tmp_path / "run", progress=quiet())
    # a run with a device in its settings could not be gone on with where there is no such device
    assert "device" not in read_config(tmp_path / "run").training
    records = [json.loads(line) for line in (tmp_path / "run" / LOG).read_text(encoding="utf-8").splitlines()]
    assert [pace.partition(" ")[0] for pace in records[0]["seconds"]] == ["float32", "bfloat16"]
    assert outcome(tmp_path / "run")["device"].startswith("cuda:0 (")


@pytest.mark.parametrize("kind", ["lines", "labelled", "images"])
def test_other_tasks_train_there_too(gpu: torch.device, tmp_path: Path, kind: str) -> None:
    texts = [
        f"the {animal} number {number} was {mood}"
        for number in range(20)
        for animal in ("dog", "cat")
        for mood in ("tired", "happy")
    ]
    (tmp_path / "lines").write_text("\n".join(texts), encoding="utf-8")
    (tmp_path / "labelled.tsv").write_text("\n".join(f"{text}\t{'dog' in text}" for text in texts), encoding="utf-8")
    tables: dict[str, dict[str, Any]] = {
        "lines": {"task": "fill-mask", "lines": {"train": str(tmp_path / "lines"), "tokenizer": "word"}},
        "labelled": {"task": "classify", "labelled": {"train": str(tmp_path / "labelled.tsv"), "tokenizer": "word"}},
        "images": {"task": "classify", "images": {"source": "digits", "patch": 4}},
    }
    model, losses = {"layers": 1, "width": 8, "feed_forward": 8, "heads": 2, "dropout": 0.0}, []
    for device in ("cpu", "cuda"):
        follow(
            RunSettings.model_validate({**tables[kind], "model": model, "training": TRAINING | {"device": device}}),
            tmp_path / device,
            progress=quiet(),
        )
        losses.append(outcome(tmp_path / device)["loss"])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
