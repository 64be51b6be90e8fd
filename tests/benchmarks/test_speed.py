import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import _speed
import pytest
from _speed import line_latencies, measure_translation, rate_table

from attent.models.build import build
from attent.models.settings import DecoderSettings, TransformerSettings
from attent.runs.folder import RunConfig, RunWriter
from attent.tasks.text_generation.text_generator import load as load_generator
from attent.tasks.translation.translator import load
from attent.text.tokenizer import CharTokenizer
from attent.text.tokenizers import learn


class Recorder:
    """An engine that remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, int]] = []

    def search(self, texts: Sequence[str], settings: Any = None, *, batch: int = 0) -> list[Any]:
        self.asked.append((len(texts), 1 if settings is None else settings.beam, batch))
        return []


@pytest.fixture
def translating(tmp_path: Path) -> Path:
    """The run folder of an untrained translator."""
    settings = TransformerSettings(encoder_layers=1, decoder_layers=1, width=8, feed_forward=12, heads=2)
    tokenizers = CharTokenizer("abcdef"), CharTokenizer("012345")
    with RunWriter(tmp_path / "translating") as run:
        config = RunConfig(model=settings, tokenizers={"source": "char", "target": "char"})
        run.finish(config, build(settings, *(tokenizer.size for tokenizer in tokenizers)), *tokenizers)
    return tmp_path / "translating"


@pytest.fixture
def generating(tmp_path: Path) -> Path:
    """The run folder of an untrained language model."""
    settings = DecoderSettings(layers=1, width=8, feed_forward=12, heads=2)
    tokenizer = learn("word", ["the dog was tired ."])
    corpus = {"lines": {"train": "lines.txt", "tokenizer": "word"}}
    with RunWriter(tmp_path / "generating") as run:
        config = RunConfig(model=settings, tokenizers={"text": "word"}, corpus=corpus, task="text-generation")
        run.finish(config, build(settings, tokenizer.size, tokenizer.size), tokenizer)
    return tmp_path / "generating"


def test_sides_take_turns_size_by_size_and_the_fastest_round_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []
    clock = itertools.chain([0.0, 4.0, 10.0, 11.0, 20.0, 22.0, 30.0, 38.0])
    monkeypatch.setattr(_speed.time, "perf_counter", lambda: next(clock))
    sides = {name: lambda size, name=name: calls.append((name, size)) for name in ("a", "b")}
    table = rate_table("lines", sides, (5,), lambda size: 8 * size, rounds=2)
    assert calls == [("a", 5), ("b", 5)] * 2
    assert table.rows == [
        {"engine": "a", "batch 5": 20.0, "batch 5, median": pytest.approx(40 / 3)},
        {"engine": "b", "batch 5": 40.0, "batch 5, median": pytest.approx(40 / 4.5)},
    ]
    assert [column.title for column in table.columns] == ["engine", "batch 5"]


def test_lines_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times = (number for line in range(1, 22) for number in (0.0, line / 1000))
    monkeypatch.setattr(_speed.time, "perf_counter", lambda: next(times))
    engine = Recorder()
    (row,) = line_latencies({"only": engine}, ["x"] * 21, ["greedy"])
    assert engine.asked == [(1, 1, 1)] * 21
    assert row == {"engine": "only", "greedy, p50": pytest.approx(11), "greedy, p95": pytest.approx(20)}


def test_a_translator_is_measured(translating: Path) -> None:
    sizes = {"greedy": (2, 3, 4), "beam 5": (8, 16)}
    report = measure_translation({"attent": load(translating)}, ["abc", "fade", "bee"], rounds=1, sizes=sizes)
    assert [[column.title for column in table.columns] for table in report.tables] == [
        ["engine", "batch 2", "batch 3"],
        ["engine", "batch 8"],
        ["engine", "greedy, p50", "greedy, p95", "beam 5, p50", "beam 5, p95"],
    ]
    assert [row["engine"] for table in report.tables for row in table.rows] == ["attent"] * 3


def test_every_text_of_a_language_model_has_all_its_tokens(generating: Path) -> None:
    generator = load_generator(generating)
    texts: Any = _speed.generate(generator, 3, 4)
    assert [len(text.tokens) for text in texts] == [4, 4, 4]
