"""Options for comparisons of tiny models on few dates, and a run folder of an untrained model."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from comparison import trainings
from comparison.trainings import Options

from attent.models.build import build
from attent.models.settings import TransformerSettings
from attent.runs.folder import RunConfig, RunWriter
from attent.text.tokenizer import CharTokenizer
from attent.training.progress import Progress

DATES = {"locales": ["en", "fr"], "training_pairs": 64, "validation_pairs": 8}
DATES |= {"held_out_dates": 30, "held_out_pairs": 9, "held_out_combinations": 2}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the comparisons' models and corpora tiny."""
    monkeypatch.setattr(trainings, "DATES", DATES)
    joined = {"validation_pairs": 15, "held_out_pairs": 30, "untagged": 0.0}
    monkeypatch.setattr(trainings, "DATES_TO_JOIN", DATES | joined)
    monkeypatch.setattr(trainings, "RNN", trainings.RNN | {"embedding_width": 4, "width": 8})
    layers = {"encoder_layers": 1, "decoder_layers": 1, "width": 8, "feed_forward": 8}
    monkeypatch.setattr(trainings, "TRANSFORMER", trainings.TRANSFORMER | layers)


@pytest.fixture
def options(small: None, tmp_path: Path) -> Callable[..., Options]:
    """Options of a comparison of two updates a training."""
    return lambda **more: Options(tmp_path / "compared", **({"updates": 2, "seeds": 1} | more))


@pytest.fixture
def silent() -> Progress:
    """A progress line that is not printed."""
    return Progress(io.StringIO())


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=1, width=8, feed_forward=12, heads=2)
    tokenizers = CharTokenizer("abcdef"), CharTokenizer("012345")
    folder = tmp_path_factory.mktemp("runs") / "made"
    with RunWriter(folder) as run:
        config = RunConfig(model=settings, tokenizers={"source": "char", "target": "char"})
        run.finish(config, build(settings, *(tokenizer.size for tokenizer in tokenizers)), *tokenizers)
    return folder
