"""attent patch on folders of Hugging Face models."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import attent as package
from attent.tasks.pretrained import load

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1")

WORDS = ["[PAD]", "[UNK]", "[MASK]", "[CLS]", "[SEP]", "the", "dog", "cat", "was", "slept"]
SPECIAL = {"bos_token_id": 3, "eos_token_id": 4, "pad_token_id": 0}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a GPT-2 and a BERT with a head for masked words, whose weights are large."""
    transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed")
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    gpt2 = transformers.GPT2Config(vocab_size=len(WORDS), n_embd=12, n_layer=2, n_head=3, n_positions=11, **SPECIAL)
    sizes = {"hidden_size": 6, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 5}
    bert = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=11, **sizes)
    for model in (transformers.GPT2LMHeadModel(gpt2), transformers.BertForMaskedLM(bert)):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
        model.save_pretrained(folder / model.config.model_type)
        vocabulary = {word: number for number, word in enumerate(WORDS)}
        transformers.BertTokenizer(vocab=vocabulary).save_pretrained(folder / model.config.model_type)
    return folder


COMMAND = ("--clean", "the dog slept", "--corrupt", "the cat slept", "--answers", "dog", "cat")


def test_a_decoder_is_patched_as_in_python(attent, folders: Path, tmp_path: Path) -> None:
    out = tmp_path / "effects.jsonl"
    done = attent("patch", folders / "gpt2", *COMMAND, "--out", out)
    assert done.code == 0 and done.err[0] == "logit of 'dog' minus that of 'cat'" and len(done.err) == 7
    model = load(folders / "gpt2")
    # a language model reads no token that ends a text
    sides = [torch.tensor([model.tokenizer(text).input_ids[:-1]]) for text in COMMAND[1:4:2]]
    effects = package.patch(model.model, *sides, (WORDS.index("dog"), WORDS.index("cat")))  # pyright: ignore[reportCallIssue]
    assert done.out == str(effects).splitlines()
    lines = out.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 7
    # the rest of a killed command
    out.write_text("\n".join(lines[:3]) + '\n{"layer": 0,', encoding="utf-8")
    again = attent("patch", folders / "gpt2", *COMMAND, "--out", out)
    assert again.out == done.out and out.read_text(encoding="utf-8").splitlines() == lines
    values = json.loads("\n".join(attent("patch", folders / "gpt2", *COMMAND, "--by-position", "--json").out))
    assert torch.tensor(values["effects"]).shape == (2, 3, 4) and values["answers"] == ["dog", "cat"]


def test_a_masked_model_is_patched_at_its_mask(attent, refused, folders: Path) -> None:
    texts = ("--clean", "the dog [MASK]", "--corrupt", "the cat [MASK]")
    values = json.loads("\n".join(attent("patch", folders / "bert", *texts, *COMMAND[4:], "--json").out))
    model = load(folders / "bert")
    with torch.no_grad():
        logits = model.model(torch.tensor([model.tokenizer(texts[1]).input_ids])).logits[0, 3]
    assert values["clean"] == pytest.approx(
        [(logits[WORDS.index("dog")] - logits[WORDS.index("cat")]).item()], abs=1e-5
    )
    for what in ("weights", "queries", "keys", "values"):
        assert attent("patch", folders / "bert", *texts, *COMMAND[4:], "--what", what).code == 0
    noise = attent("patch", folders / "bert", *texts, *COMMAND[4:], "--direction", "noise")
    assert noise.out[0].startswith("output, noise")


def test_what_cannot_be_patched_is_refused(attent, refused, folders: Path, run_folder: Path, tmp_path: Path) -> None:
    gpt2 = folders / "gpt2"
    assert "is no language model of Hugging Face" in refused("patch", run_folder, *COMMAND)
    assert "the same number of tokens, got 4 and 3" in refused("patch", gpt2, *COMMAND[:2], "--corrupt", "cat slept")
    assert "'dog cat' has 2 tokens" in refused("patch", gpt2, *COMMAND[:4], "--answers", "dog cat", "cat")
    same = attent("patch", gpt2, *COMMAND[:2], "--corrupt", COMMAND[1], *COMMAND[4:])
    assert same.code == 2 and "no patch has an effect" in same.err[-1]
    assert "for both texts; --answers takes two tokens" in refused("patch", gpt2, *COMMAND[:2], "--corrupt", COMMAND[1])
    out = tmp_path / "effects.jsonl"
    assert attent("patch", gpt2, *COMMAND, "--out", out).code == 0
    settings = f"{out} belongs to another model, other inputs or other settings: name another file"
    assert settings in attent("patch", gpt2, *COMMAND, "--what", "values", "--out", out).err[-1]
    assert (
        settings
        in attent("patch", gpt2, "--clean", "dog was", "--corrupt", "cat was", *COMMAND[4:], "--out", out).err[-1]
    )
    assert settings in attent("patch", folders / "bert", *COMMAND, "--out", out).err[-1]
