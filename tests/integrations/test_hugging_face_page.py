"""The three lines of docs/hugging-face.md for an encoder, a decoder and an encoder–decoder of Hugging Face's.

They run as they stand there.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import attent

PAGE = Path(__file__).parents[2] / "docs" / "hugging-face.md"
BLOCK = re.compile(r"```python\n(with attent\.watch\(model\) as seen:\n[^`]*?\.save\(\"(\w+)\.html\"\)\n)```")


class Inputs(dict[str, torch.Tensor]):
    """What a tokenizer makes of one text."""

    @property
    def input_ids(self) -> torch.Tensor:
        return self["input_ids"]


def run_block(
    models: Any, name: str, variant: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Any], list[str]]:
    """The scene of the page that the block of this name saves, and what the tokenizer would say of what was written."""
    blocks = {match[2]: match[1] for match in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))}
    assert len(blocks[variant].splitlines()) == 3
    monkeypatch.chdir(folder)
    model, _ = getattr(models, name)()
    generating = getattr(model, "generation_config", None)
    if generating is not None:
        generating.max_new_tokens, generating.do_sample, generating.eos_token_id = 5, False, None
    tokenizer = SimpleNamespace(decode=lambda token: f"t{int(token)}")
    inputs = Inputs(input_ids=torch.tensor([[5, 9, 3, 7]]), attention_mask=torch.ones(1, 4, dtype=torch.long))
    names: dict[str, Any] = {"attent": attent, "model": model, "inputs": inputs, "tokenizer": tokenizer}
    with torch.no_grad():
        exec(blocks[variant], names)
    html = (folder / f"{variant}.html").read_text(encoding="utf-8")
    match = re.search(r'<script type="application/json" id="scene">(.*?)</script>', html)
    written = names["written"][0] if "written" in names else ()
    return json.loads(match[1]), [tokenizer.decode(token) for token in written]


def test_an_encoder(models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene, _ = run_block(models, "bert", "encoder", tmp_path, monkeypatch)
    groups = [(group["name"], len(group["layers"]), group["heads"]) for group in scene["groups"]]
    assert groups == [("self", 2, 3), ("self.norms", 2, 3)]
    assert scene["texts"]["tokens"]["labels"] == ["t5", "t9", "t3", "t7"]


def test_a_decoder(models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene, written = run_block(models, "gpt2", "decoder", tmp_path, monkeypatch)
    group, norms = scene["groups"]
    assert norms["name"] == "self.norms"
    assert (group["name"], group["height"], group["width"], group["about"]) == ("self", 8, 8, "the token")
    # what was written last was not read again
    assert scene["texts"]["tokens"]["labels"] == written[:-1]


def test_an_encoder_decoder(models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene, written = run_block(models, "t5", "both", tmp_path, monkeypatch)
    names = ["cross", "encoder", "decoder"]
    assert sorted(group["name"] for group in scene["groups"]) == sorted([*names, *(f"{name}.norms" for name in names)])
    cross, encoder, decoder = (group for name in names for group in scene["groups"] if group["name"] == name)
    assert (cross["height"], cross["width"], cross["about"]) == (5, 4, "the token being written")
    assert scene["texts"][cross["rows"]]["labels"] == written[1:]
    assert scene["texts"][cross["columns"]]["labels"] == ["t5", "t9", "t3", "t7"]
    assert scene["texts"][decoder["columns"]]["labels"] == written[:-1]
    assert encoder["height"] == 4
