"""Comparisons of models so small, and on so few dates, that each takes a moment."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from attent.experiments.comparing import settings
from attent.experiments.comparing.settings import Options
from attent.training.progress import Progress

DATES = {
    "locales": ["en", "fr"],
    "training_pairs": 64,
    "validation_pairs": 8,
    "held_out_dates": 30,
    "held_out_pairs": 24,
    "held_out_combinations": 2,
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little of everything."""
    monkeypatch.setattr(settings, "DATES", DATES)
    monkeypatch.setattr(settings, "RECURRENT", settings.RECURRENT | {"embedding_width": 4, "width": 8})
    layers = {"encoder_layers": 1, "decoder_layers": 1, "width": 8, "feed_forward": 8}
    monkeypatch.setattr(settings, "TRANSFORMER", settings.TRANSFORMER | layers)


@pytest.fixture
def options(small: None, tmp_path: Path) -> Callable[..., Options]:
    """Options of a comparison of two updates a training."""
    return lambda **more: Options(tmp_path / "compared", **({"updates": 2, "seeds": 1} | more))


@pytest.fixture
def silent() -> Progress:
    """Progress that nobody sees."""
    return Progress(io.StringIO())
