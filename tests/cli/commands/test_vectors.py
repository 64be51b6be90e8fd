from __future__ import annotations

from pathlib import Path

import pytest
import torch

from attent.runs.folder import read as read_run
from attent.text.word_vectors import read


def test_a_runs_embeddings_are_written(attent, run_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "source.vec"
    done = attent("vectors", run_folder, "--out", out)
    run = read_run(run_folder)
    characters = [character for character in run.source_tokenizer.entries if character.strip()]
    assert (done.code, done.out) == (0, [f"{len(characters)} words of 8 numbers: {out}"])
    assert done.err[0].startswith(f"{run.source_tokenizer.size - 4 - len(characters)} ids are left out: spaces, ")
    result, embedding = read(out), run.model.embeddings["source"]
    assert result.words == characters
    for character in characters[:5]:
        (token,) = run.source_tokenizer.encode(character)
        torch.testing.assert_close(result[character], embedding(torch.tensor([[token]]))[0, 0], rtol=1e-6, atol=1e-7)
    assert attent("vectors", run_folder, "--side", "target", "--out", tmp_path / "a.txt").code == 0
    assert set("0123456789-") <= set(read(tmp_path / "a.txt").words)


def test_a_text_gives_vectors_that_walk_reads(attent, tmp_path: Path) -> None:
    pytest.importorskip("gensim", reason="gensim is not installed")
    (tmp_path / "text.txt").write_text("A dog runs .\nThe dog runs home !\n", encoding="utf-8")
    command = ["vectors", "--from-text", tmp_path / "text.txt", "--out"]
    done = attent(*command, tmp_path / "a.vec", "--min-count", 1, "--width", 6, "--epochs", 2)
    assert (done.code, done.out) == (0, [f"7 words of 6 numbers: {tmp_path / 'a.vec'}"])
    assert done.err == [f"pass {number} of 3: 2 lines" for number in (1, 2, 3)]
    assert set(read(tmp_path / "a.vec").words) == {"a", "the", "dog", "runs", "home", ".", "!"}
    assert attent("walk", "--vectors", tmp_path / "a.vec", "A dog runs!").code == 0
    # the standard minimum leaves nothing
    done = attent(*command, tmp_path / "b.vec")
    assert (done.code, (tmp_path / "b.vec").exists()) == (2, False)
    assert done.err[-1].endswith(
        "need two words that occur at least 5 times, got 0: set a lower minimum count or add text"
    )


def test_wrong_options_are_refused(attent, run_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.vec"
    for arguments, message in {
        (): "give a run folder, or a text with --from-text",
        (run_folder, "--from-text", "a.txt"): "give a run folder, or a text with --from-text",
        (run_folder, "--epochs", 3): "these options are for --from-text",
        ("--from-text", "a.txt", "--epochs", 0): "--epochs must be at least 1, got 0",
        ("--from-text", "-"): "several passes over the text: give a file, not -",
    }.items():
        done = attent("vectors", *arguments, "--out", out)
        assert done.code == 2
        assert message in done.err[-1]
    assert "--out must end in .vec or .txt" in attent("vectors", run_folder, "--out", tmp_path / "a.bin").err[-1]
