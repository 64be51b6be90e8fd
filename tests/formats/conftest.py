"""Run folders of untrained models: their translations are nonsense, but the same from every engine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from attent.models.build import build
from attent.models.settings import RnnSettings, TransformerSettings
from attent.runs.folder import Run, RunConfig, RunWriter, read
from attent.text.tokenizer import CharTokenizer

SOURCE, TARGET = CharTokenizer("abcdefghij"), CharTokenizer("0123456789")

MakeRun = Callable[..., Path]


@pytest.fixture(scope="session")
def make_run(tmp_path_factory: pytest.TempPathFactory) -> MakeRun:
    """A function that writes a run folder of an untrained Transformer or RNN with these settings."""

    def make(kind: str = "transformer", tokenizers: tuple[Any, Any] = (SOURCE, TARGET), **changes: Any) -> Path:
        settings: Any
        if kind == "rnn":
            settings = RnnSettings(**{"width": 14, "embedding_width": 10, **changes})
        else:
            sizes = {"encoder_layers": 2, "decoder_layers": 1, "width": 24, "feed_forward": 26, "heads": 4}
            settings = TransformerSettings(**{**sizes, **changes})
        torch.manual_seed(3)
        model = build(settings, tokenizers[0].size, tokenizers[1].size)
        with torch.no_grad():
            for parameter in model.parameters():
                # larger weights separate the tokens' probabilities, so that rounding decides nothing; biases must not
                # be zero
                parameter.copy_(
                    1.5 * parameter if parameter.dim() > 1 else parameter + 0.2 * torch.randn_like(parameter)
                )
        folder = tmp_path_factory.mktemp("made") / "run"
        with RunWriter(folder) as run:
            kinds = (getattr(tokenizer, "KIND", "char") for tokenizer in tokenizers)
            run.finish(
                RunConfig(model=settings, tokenizers=dict(zip(("source", "target"), kinds, strict=True))),
                model,
                *tokenizers,
            )
        return folder

    return make


@pytest.fixture(scope="session")
def run_folder(make_run: MakeRun) -> Path:
    return make_run()


@pytest.fixture
def run(run_folder: Path) -> Run:
    return read(run_folder)


class Exported(NamedTuple):
    """A run, and the folder of its ONNX graphs."""

    run: Run
    folder: Path
    manifest: dict[str, Any]


@pytest.fixture(scope="session")
def exported(make_run, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A Transformer with rotary positions and one layer a side, exported to ONNX."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    from attent.formats.onnx import write

    run = read(make_run(encoder_layers=1, position="rotary", norm="pre"))
    folder = tmp_path_factory.mktemp("graphs")
    return Exported(run, folder, write(run, "RUN", folder, None))
