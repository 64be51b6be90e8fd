from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.runs.config import RunConfig
from attent.runs.folder import MODEL, RunWriter
from attent.text.tokenizer import CharTokenizer

SETTINGS = TransformerSettings(
    encoder_layers=1, decoder_layers=1, width=16, feed_forward=16, heads=2, share_embeddings="none"
)


def write_run(path: Path, **languages: str) -> Path:
    torch.manual_seed(0)
    tokenizer = CharTokenizer("abc ")
    config = RunConfig(model=SETTINGS, origin=languages)
    with RunWriter(path) as run:
        run.finish(config, Transformer(SETTINGS, tokenizer.size, tokenizer.size).eval(), tokenizer, tokenizer)
    return path


def test_runs_are_listed_and_checked(attent: Any, tmp_path: Path) -> None:
    for name, languages in (("a", {}), ("b", {"source_language": "en", "target_language": "de"})):
        write_run(tmp_path / name, **languages)
    (tmp_path / "no run").mkdir()
    size = f"{sum(file.stat().st_size for file in (tmp_path / 'a').iterdir()) / 2**20:.1f}"
    listed = attent("runs", tmp_path)
    assert listed.code == 0 and listed.out[0] == f"a  translate  float32  {size}  finished"
    assert listed.out[1].startswith("b  translate  en → de  float32  ") and len(listed.out) == 2
    weights = bytearray((tmp_path / "a" / MODEL).read_bytes())
    weights[-1] ^= 1
    (tmp_path / "a" / MODEL).write_bytes(weights)
    listed = attent("runs", tmp_path, "--json")
    first, second = map(json.loads, listed.out)
    assert listed.code == 2 and "SHA-256" in first["state"] and second["state"] == "finished"
    assert first["run"] == "a" and second["languages"] == "en → de"
    assert attent("runs", tmp_path / "missing").err == [f"attent: {tmp_path / 'missing'}: there is no such folder"]
