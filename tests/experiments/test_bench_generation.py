from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from attent.errors import RunError
from attent.experiments import bench_generation
from attent.experiments.bench_generation import compare, make_sides, measure
from attent.models.build import build
from attent.models.settings import DecoderSettings
from attent.ops import native
from attent.runs.folder import RunConfig, RunWriter
from attent.text.tokenizer import EOS
from attent.text.tokenizers import learn

TEXT = ["the dog was tired , so it slept .", "the cat was happy ."]


@pytest.fixture
def language_model(tmp_path: Path) -> Path:
    """The run folder of a language model that is sure of the line's end."""
    settings, tokenizer = (
        DecoderSettings(layers=1, width=8, feed_forward=12, heads=2, output_bias=True),
        learn("word", TEXT),
    )
    model = build(settings, tokenizer.size, tokenizer.size)
    with torch.no_grad():
        model.to_logits.bias[EOS] = 99
    corpus = {"lines": {"train": "lines.txt", "tokenizer": "word"}}
    with RunWriter(tmp_path / "run") as run:
        config = RunConfig(model=settings, tokenizers={"text": "word"}, corpus=corpus, task="text-generation")
        run.finish(config, model, tokenizer)
    return tmp_path / "run"


def test_every_side_writes_as_many_tokens(language_model: Path) -> None:
    sides, settings, notes = make_sides(language_model, 4)
    assert settings.layers == 1
    assert len(sides) + len(notes) == 3 + (native.library() is not None)
    for name, side in sides.items():
        texts: Any = side(3, 4)
        lengths = [len(text.tokens) for text in texts] if isinstance(texts, list) else [len(text) - 1 for text in texts]
        assert lengths == [4, 4, 4], name


def test_sides_take_turns_and_the_fastest_round_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int, int]] = []
    sides = {name: lambda texts, tokens, name=name: calls.append((name, texts, tokens)) for name in ("a", "b")}
    clock = iter([0.0, 4.0, 10.0, 11.0, 20.0, 22.0, 30.0, 38.0])
    monkeypatch.setattr(bench_generation.time, "perf_counter", lambda: next(clock))
    rows = measure(sides, 8, (5,), 2)
    assert calls == [("a", 5, 4), ("b", 5, 4), *[("a", 5, 8), ("b", 5, 8)] * 2]
    assert rows == [
        {"side": "a", "batch 5": 20.0, "batch 5, median": pytest.approx(40 / 3)},
        {"side": "b", "batch 5": 40.0, "batch 5, median": pytest.approx(40 / 4.5)},
    ]


def test_a_report(language_model: Path) -> None:
    said: list[str] = []
    report = compare(language_model, tokens=2, sizes=(1, 2), rounds=1, say=said.append)
    assert report.title == "Text generation, Transformer 1 × 8, 2 tokens a text"
    assert [column.title for column in report.tables[0].columns] == ["", "batch 1", "batch 2"]
    assert said[0] == "1 text, round 1 of 1: attent"


def test_what_is_no_language_model_is_refused(run_folder: Path) -> None:
    with pytest.raises(RunError, match="attent translate"):
        make_sides(run_folder, 4)
