from pathlib import Path
from typing import Any

import pytest
import torch
from _report import CPU
from generate import compare, make_sides

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
    sides, settings, notes = make_sides(language_model, 4, CPU)
    assert settings.layers == 1
    assert len(sides) + len(notes) == 3 + (native.library() is not None)
    for name, side in sides.items():
        texts: Any = side(3, 4)
        lengths = [len(text.tokens) for text in texts] if isinstance(texts, list) else [len(text) - 1 for text in texts]
        assert lengths == [4, 4, 4], name


def test_a_report(language_model: Path) -> None:
    messages: list[str] = []
    report = compare(language_model, tokens=2, sizes=(1, 2), rounds=1, device=CPU, say=messages.append)
    assert report.title == "Text generation, Transformer 1 × 8, 2 tokens a text"
    assert [column.title for column in report.tables[0].columns] == ["engine", "batch 1", "batch 2"]
    assert messages[0] == "greedy, new tokens per second, batches of 1, round 1 of 1: attent"
