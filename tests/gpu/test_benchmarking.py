"""Both sides of a benchmark compute on the GPU, and are waited for."""

from __future__ import annotations

import _corpora as corpora
import _training
import pytest
import torch
from attention import Case, Sides
from attention import compare as compare_attention
from calibrate import time_in_turn

from attent.devices import synchronize
from attent.text.tokenizers import learn

PIECES, TOKENS = 40, 64
SMALL = {"encoder_layers": 1, "decoder_layers": 1, "width": 8, "feed_forward": 8, "heads": 2}


@pytest.mark.parametrize("score", ["scaled_dot", "general"])
def test_attention_is_measured_there(gpu: torch.device, score: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attention.total_memory", lambda *_: 1000.0)
    case = Case(score, (1, 2, 5, 4), device=gpu)
    assert Sides(case).backward("attent")()[0].device == gpu
    report = compare_attention([case], rounds=1, seconds=0, memory=False)
    assert str(report.values()["machine"]["device"]).startswith("cuda:0")
    assert report.values()["tables"][0]["rows"][1]["difference"] < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_training_is_measured_there(gpu: torch.device, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # packed sequences hold numbers of the CPU's, which a pretended GPU has none of
    monkeypatch.delitem(_training.PLAIN["rnn"], "nn.GRU (packed) and nn.GRUCell")
    pairs = corpora.synthetic_pairs(PIECES, number=60, length=5)
    data = corpora.bitext(pairs, learn("word", [pair.source for pair in pairs], PIECES))
    small = _training.transformer().model_copy(update=SMALL)
    settings = small if kind == "transformer" else _training.RnnSettings(embedding_width=6, width=8)
    report = _training.compare(
        settings, data, PIECES, "made up", tokens=TOKENS, rounds=1, updates=1, threads=(1,), device=gpu
    )
    rows = report.values()["tables"][0]["rows"]
    assert len(rows) == 4
    assert all(row["best"] > 0 for row in rows)


def test_work_is_waited_for_before_the_clock_is_read() -> None:
    events: list[str] = []
    time_in_turn({"side": lambda: events.append("work")}, rounds=1, seconds=0, wait=lambda: events.append("wait"))
    # once to begin with, once that does not count, then three that do
    assert events == ["work", "work", *["wait", "work", "wait"] * 3]


def test_only_a_gpu_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append("cuda"))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: waited.append("mps"))
    for name in ("cpu", "cuda:1", "mps"):
        synchronize(torch.device(name))
    assert waited == ["cuda", "mps"]
