from __future__ import annotations

from pathlib import Path

import pytest
import torch

from attent.runs.folder import read as read_run
from attent.text.word_vectors import read


@pytest.mark.parametrize("ending", [".txt", ".bin", ".vec.gz"])
def test_a_runs_embeddings_are_written(attent, run_folder: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"source{ending}"
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
