import io
import json
import sys
from pathlib import Path

import pytest


def test_a_text_is_continued_as_it_is_written(attent, generating_folder: Path) -> None:
    done = attent("generate", generating_folder, "the dog was", "--max-new-tokens", 5)
    assert (done.code, done.err) == (0, [])
    assert done.out[0].startswith("the dog was")
    report = json.loads(attent("generate", generating_folder, "the dog was", "--max-new-tokens", 5, "--json").out[0])
    assert report["text"] == "\n".join(done.out) == f"the dog was{report['continuation']}"
    assert 1 <= len(report["tokens"]) <= 5 and report["log_probability"] < 0
    # without a text a new one begins
    done = attent("generate", generating_folder, "--max-new-tokens", 3)
    assert (done.code, done.err, len(done.out)) == (0, [], 1)


def test_draws_follow_from_the_seed(attent, generating_folder: Path) -> None:
    def drawn(*options: object) -> list[str]:
        done = attent("generate", generating_folder, "the dog", "--max-new-tokens", 7, *options)
        assert (done.code, done.err) == (0, [])
        return done.out

    assert drawn("--seed", 1) == drawn("--seed", 1, "--temperature", 1)
    assert drawn("--seed", 1, "--copies", 5)[:1] == drawn("--seed", 1)
    assert len({*drawn("--seed", 1, "--copies", 9)}) > 1
    assert drawn("--top-k", 1) == drawn()


def test_lines_come_from_a_file_or_standard_input(
    attent, generating_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("the dog\nthe bird\nthe cat\n", encoding="utf-8")
    done = attent("generate", generating_folder, file, "--max-new-tokens", 2)
    assert done.code == 2
    assert done.err == ["line 2: not continued: 'bird' is unknown to this model: its vocabulary lacks the word or sign"]
    assert (done.out[0][:7], done.out[1], done.out[2][:7]) == ("the dog", "", "the cat")
    lines = attent("generate", generating_folder, file, "--max-new-tokens", 2, "--json").out
    as_json = [json.loads(line) for line in lines]
    assert [item.get("error", "")[:6] for item in as_json] == ["", "'bird'", ""]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the dog\n")))
    assert attent("generate", generating_folder, "-", "--max-new-tokens", 2).out == done.out[:1]


def test_it_is_described_shown_and_walked_through(attent, generating_folder: Path, tmp_path: Path) -> None:
    assert attent("describe", generating_folder).out[0].endswith("LanguageModel, 17 text tokens")
    done = attent("show", generating_folder, "the dog was", "--out", tmp_path / "page.html")
    assert done.code == 0
    assert any("a row is about the token read" in line for line in done.out)
    assert "the dog was" in (tmp_path / "page.html").read_text(encoding="utf-8")
    done = attent("walk", generating_folder, "the dog was")
    assert "decoder.layers.0.self_attention, head 0, step by step: the dog was" in done.out[0]
    whole = attent("walk", generating_folder, "the dog was", "--layer", "whole")
    assert (whole.code, whole.err) == (0, []) and len(whole.out) > len(done.out)
    assert attent("describe", generating_folder).code == 0


def test_lines_are_scored(attent, generating_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("the dog was tired .\nthe cat\n", encoding="utf-8")
    done = attent("score", generating_folder, file)
    assert (done.code, done.err) == (0, [])
    (total, tokens, mean), (_, fewer, _) = (map(float, line.split("\t")) for line in done.out)
    assert (tokens, fewer) == (6, 3)
    assert mean == pytest.approx(total / tokens, abs=1e-5)
    file.write_text("the dog\nthe bird\n", encoding="utf-8")
    done = attent("score", generating_folder, file)
    assert done.code == 2
    assert done.err[-1].startswith(f"attent: {file}, line 2: 'bird' is unknown to this model")


def test_it_is_evaluated_on_a_text(attent, generating_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("the dog was tired .\n\nthe bird slept .\n", encoding="utf-8")
    done = attent("evaluate", generating_folder, "--text", file)
    assert (done.code, len(done.out)) == (0, 2)
    assert done.out[1] == "11 tokens, 1 of them unknown to the model, and 37 bytes, in 2 lines"
    scores = json.loads("\n".join(attent("evaluate", generating_folder, "--text", file, "--json").out))
    assert scores.keys() >= {"nats", "bits", "bits_per_byte", "perplexity"}
    assert "nats per token" in attent("evaluate", generating_folder).out[0]
    file.write_text("\n", encoding="utf-8")
    done = attent("evaluate", generating_folder, "--text", file)
    assert done.err[-1] == f"attent: {file} has no line that this model can read"


def test_a_text_is_learnt_by_either_name_of_the_task(attent, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("the dog slept .\nthe cat ran .\na man sang .\n" * 7, encoding="utf-8")
    sizes = ("model.layers=1", "model.width=8", "training.precision=float32")
    options = ["--updates", 1, *(word for size in sizes for word in ("--set", size))]
    done = attent("train", "--task", "language-model", "--text", file, "--out", tmp_path / "run", *options)
    assert done.code == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))["tokenizers"] == {"text": "bpe"}
    assert attent("generate", tmp_path / "run", "the", "--max-new-tokens", 1).code == 0
    done = attent("train", "--text", file, "--out", tmp_path / "blanks", *options)
    assert done.code == 0
    assert "training a model to fill blanks (fill-mask); to continue a text: --task text-generation" in done.err
