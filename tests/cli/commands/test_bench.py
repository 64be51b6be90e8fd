from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from attent.experiments.report import Report

ATTENTION = ("bench", "attention", "--rounds", 1, "--seconds", 0, "--no-memory", "--shape", "1,2,5,4")
TRAIN = ("bench", "train", "--pieces", 30, "--batch-tokens", 64, "--rounds", 1, "--updates", 1, "--threads", 1)


def test_the_measurements_are_listed(attent) -> None:
    done = attent("bench", "--help")
    assert done.code == 0
    assert [line.split()[0] for line in done.out if line.startswith("  ")][-4:] == [
        "attention",
        "train",
        "translate",
        "generate",
    ]


def test_a_calibration_stands_alone(attent, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(
        "attent.experiments.calibration.calibrate", lambda say: calls.append(say) or Report("Calibrated", {}, [])
    )
    monkeypatch.setattr("attent.experiments.report.machine_sentence", lambda machine: "on a machine")
    assert attent("bench", "--calibrate").out[0] == "## Calibrated"
    assert len(calls) == 1
    done = attent("bench", "--calibrate", "attention")
    assert (done.code, done.err) == (2, ["attent: --calibrate stands alone: attent bench --calibrate"])
    assert attent("bench").out[0].startswith("Usage: attent bench")


def test_attention_is_a_table_on_standard_output_and_progress_on_standard_error(attent) -> None:
    done = attent(*ATTENTION, "--score", "dot", "--score", "gated", "--causal")
    assert done.code == 0
    assert done.out[0] == "## Attention beside plain PyTorch"
    assert f"torch {torch.__version__}" in done.out[2]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in done.out if line.startswith("| ")][2:]
    assert [row[0] for row in rows] == ["dot", "dot", "gated", "gated"]
    assert [row[2] for row in rows[1::2]] == ["scaled_dot_product_attention", "textbook"]
    assert done.err == ["dot (1, 2, 5, 4) float32 causal", "gated (1, 2, 5, 4) float32 causal"]


def test_attention_for_machines(attent) -> None:
    done = attent(*ATTENTION, "--score", "additive", "--threads", 1, "--json")
    found = json.loads("\n".join(done.out))
    assert found["machine"]["threads"] == 1
    assert found["tables"][0]["rows"][0]["forward"] > 0


@pytest.mark.slow
def test_memory_is_measured_in_processes_of_their_own(attent) -> None:
    done = attent(
        "bench", "attention", "--rounds", 1, "--seconds", 0, "--score", "additive", "--shape", "1,1,1024,32", "--json"
    )
    ours, textbook = json.loads("\n".join(done.out))["tables"][0]["rows"]
    assert ours["memory"] < 128 < textbook["memory"]  # MiB of the textbook's one table


def test_training(attent) -> None:
    done = attent(*TRAIN)
    assert done.code == 0
    assert "made-up sentences" in done.out[0]
    sides = [line.split("|")[1].strip() for line in done.out if line.startswith("| ")][2:]
    assert sides == [
        "attent, float32",
        "attent, bfloat16",
        "nn.Transformer, float32",
        "nn.Transformer, bfloat16 autocast",
    ]
    assert done.err[0] == "making up sentences"


def test_training_of_recurrent_layers_on_pairs_of_ones_own(attent, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("one\teins\ntwo\tzwei\n" * 9, encoding="utf-8")
    done = attent(*TRAIN, "--pieces", 290, "--model", "rnn", "--data", tmp_path / "pairs.tsv", "--json")
    found = json.loads("\n".join(done.out))
    assert "pairs.tsv" in found["title"]
    assert [row["side"] for row in found["tables"][0]["rows"]][:3] == [
        "attent, float32",
        "attent, bfloat16",
        "nn.GRU (padded) and nn.GRUCell, float32",
    ]


def test_translation(attent, run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("en | 3/3/2026\n\nen | 4/4/2027\n", encoding="utf-8")
    done = attent("bench", "translate", run_folder, tmp_path / "lines.txt", "--rounds", 1, "--alone", 1)
    assert done.code == 0
    assert done.out[0] == "## 2 lines translated"
    assert [line for line in done.out if line.endswith("per second:")] == [
        "greedy, lines per second:",
        "beam 5, lines per second:",
    ]
    assert sum(line.startswith("| attent |") for line in done.out) == 3
    assert [line.split()[0] for line in done.out if "left out" in line] == ["ctranslate2", "onnx"]


def test_generation(attent, generating_folder: Path) -> None:
    done = attent(
        "bench", "generate", generating_folder, "--max-new-tokens", 3, "--batch", 1, "--batch", 2, "--rounds", 1
    )
    assert done.code == 0
    assert done.out[0] == "## Text generation, Transformer 1 × 8, 3 tokens a text"
    assert "greedy, new tokens per second:" in done.out
    rows = [line.split("|")[1].strip() for line in done.out if line.startswith("| ")][2:]
    assert rows[:3] == ["attent", "attent, step by modules", "nn.TransformerEncoder, all again for each token"]
    assert done.err[0] == "1 text, round 1 of 1: attent"
    assert "2 texts, round 1 of 1: attent" in done.err


def test_what_is_no_language_model_generates_nothing(attent, run_folder: Path) -> None:
    done = attent("bench", "generate", run_folder)
    assert done[:2] == (2, [])
    assert "attent translate" in done.err[0]


def test_a_device_that_is_not_there(attent, run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attent.devices.devices", lambda: ["cpu"])
    done = attent("bench", "translate", run_folder, "no-such-file", "--device", "cuda")
    assert (done.code, done.err[0][:44]) == (2, "attent: this machine has no device 'cuda': t")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["attention", "--shape", "1,2"], "B,H,T,D"),
        (["attention", "--score", "aditive"], "did you mean 'additive'"),
        (["attention", "--dtype", "int8"], "Invalid value for '--dtype'"),
        (["attention", "--dropout", "1"], "Invalid value for '--dropout'"),
        (["train", "--preset", "tny"], "did you mean 'tiny'"),
        (["train", "--model", "rnn", "--preset", "tiny"], "--preset is for --model transformer"),
        (["train", "--model", "rnn", "--compile"], "--compile is for --model transformer"),
        (["train", "--threads", "0"], "Invalid value for '--threads'"),
        (["translate", "no-such-run", __file__], "no-such-run is no run folder"),
        (["translate", "no-such-run"], "Missing argument"),
        (["generate", "no-such-run"], "no-such-run is no run folder"),
        (["generate", "no-such-run", "--batch", "0"], "Invalid value for '--batch'"),
        (["translate", "no-such-run", "no-such-file"], "no-such-file cannot be read"),
    ],
)
def test_what_cannot_be_measured_is_one_line(attent, arguments: list[str], says: str) -> None:
    done = attent("bench", *arguments)
    assert done[:2] == (2, [])
    assert len(done.err) == 1
    assert says in done.err[0]


def test_data_that_are_not_there(attent, tmp_path: Path) -> None:
    done = attent(*TRAIN, "--data", tmp_path / "pairs.tsv")
    assert done[:2] == (2, [])
    assert "cannot be read" in done.err[-1]


def test_a_file_without_lines(attent, run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n", encoding="utf-8")
    done = attent("bench", "translate", run_folder, tmp_path / "empty.txt")
    assert done.err == [f"attent: {tmp_path / 'empty.txt'} has no line to translate"]
