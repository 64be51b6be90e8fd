"""attent show, fill and explore on Hugging Face models, and what other commands say of one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from attent.explorer.explorer import TranslateRequest
from attent.explorer.server import ExploreServer

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1")

TEXT = "the dog was [MASK]"
WORDS = ["[PAD]", "[UNK]", "[MASK]", "[CLS]", "[SEP]", "the", "dog", "was"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small BERT that fills blanks."""
    transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed")
    folder = tmp_path_factory.mktemp("models") / "bert"
    torch.manual_seed(0)
    sizes = {"hidden_size": 6, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 5}
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=11, **sizes)
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    transformers.BertTokenizer(vocab={word: number for number, word in enumerate(WORDS)}).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small Qwen 3."""
    transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed")
    folder = tmp_path_factory.mktemp("models") / "qwen"
    torch.manual_seed(0)
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    ids = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "max_position_embeddings": 32}
    config = transformers.Qwen3Config(vocab_size=len(WORDS), head_dim=6, intermediate_size=5, **sizes, **ids)
    transformers.Qwen3ForCausalLM(config).save_pretrained(folder)
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    import tokenizers

    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(folder)
    return folder


def test_a_language_model_continues_a_text(attent, refused, language_model: Path, folder: Path, tmp_path: Path) -> None:
    done = attent("generate", language_model, "the dog", "--max-new-tokens", 5)
    assert (done.code, done.err) == (0, [])
    words = done.out[0].split()
    assert words[:2] == ["the", "dog"]
    (text,) = map(json.loads, attent("generate", language_model, "the dog", "--max-new-tokens", 5, "--json").out)
    assert text["text"] == done.out[0]
    drawn = attent("generate", language_model, "the dog", "--max-new-tokens", 5, "--copies", 3, "--seed", 1).out
    assert len(drawn) == 3
    done = attent("show", language_model, "the dog", "--generate", 5, "--out", tmp_path / "page.html")
    assert (done.code, done.out[0]) == (0, "model.layers.1.self_attn, mean over 4 heads")
    assert [line.split()[0] for line in done.out if "│" in line][:2] == words[:2]
    assert f"<title>{text['text']}</title>" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "BertForMaskedLM does not generate text" in refused("generate", folder, "the dog")
    assert "BertForMaskedLM does not generate text" in refused("show", folder, "the dog", "--generate", 3)
    assert "--translation or --generate" in refused("show", folder, "a", "--generate", 3, "--translation", "b")
    assert "float32 or bfloat16" in refused("generate", language_model, "the dog", "--dtype", "int8")


def test_a_language_model_is_explored_as_a_run(
    attent, refused, language_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []

    def generate(server: ExploreServer) -> None:
        head = {"group": "self", "layer": 1, "head": 2}
        off = [{"module": "model.layers.0.self_attn", "head": 1}]
        for request in ({}, {"prefix": [6]}, {"off": off}):
            asked = TranslateRequest.model_validate({"text": "the dog", "where": head, **request})
            events.append([*server.explorer.generate(asked)])

    monkeypatch.setattr(ExploreServer, "wait", generate)
    assert attent("explore", language_model, language_model, "--port", 0, "--no-open").code == 0
    for start, *tokens, end in events:
        assert start["source"] == ("the", "dog")
        assert [token["said"]["token"] for token in tokens] == end["tokens"]
        assert all(len(token["weights"]) == 2 for token in tokens)
    assert [tokens[1]["forced"] for tokens in events] == [False, True, False]
    assert events[1][-1]["tokens"][0] == 6
    probabilities = [tokens[1]["said"]["probability"] for tokens in events]
    assert probabilities[0] != probabilities[2]


def test_its_attention_is_shown(attent, folder: Path, tmp_path: Path) -> None:
    done = attent("show", folder, TEXT, "--out", tmp_path / "page.html")
    assert (done.code, done.err) == (0, [f"drawn into {tmp_path / 'page.html'}"])
    assert done.out[0] == "bert.encoder.layer.1.attention.self, mean over 3 heads"
    assert f"<title>{TEXT}</title>" in (tmp_path / "page.html").read_text(encoding="utf-8")
    heads = attent("show", folder, TEXT, "--layer", 0, "--head", "all").out
    assert [line for line in heads if "attention" in line] == [
        f"bert.encoder.layer.0.attention.self, head {head}" for head in range(3)
    ]


def test_its_heads_are_ranked_by_two_words(attent, refused, folder: Path, tmp_path: Path) -> None:
    done = attent("show", folder, "the dog was", "--find", "dog:was")
    assert (done.code, done.err, len(done.out)) == (0, [], 17)
    assert [done.out[0], done.out[9]] == ["dog → was: 6 heads", "was → dog: 6 heads"]
    assert {line.split()[0] for line in done.out[2:8]} == {f"bert.encoder.layer.{n}.attention.self" for n in (0, 1)}
    file = tmp_path / "pairs.tsv"
    file.write_text("the dog was\tdog:was\nwas the dog\tthe:dog\n", encoding="utf-8")
    assert attent("show", folder, "--find", file).out[0] == "first word → second word: 6 heads, 2 texts"
    assert refused("show", folder) == "a text is missing: attent show RUN TEXT"
    assert "is a file with texts of its own" in refused("show", folder, "the dog", "--find", file)
    assert "'cat' is not a word of the text" in refused("show", folder, "the dog", "--find", "dog:cat")
    for option in (("--layer", 0), ("--head", 1), ("--kind", "self"), ("--out", "a.html"), ("--translation", "x")):
        assert "--find reads all heads: leave out" in refused("show", folder, "the dog", "--find", "the:dog", *option)


def test_special_tokens_are_left_out(attent, folder: Path) -> None:
    done = attent("show", folder, TEXT, "--without-special")
    note = "Without [CLS], [SEP]; the weights left in a row are divided by their sum."
    assert (done.code, done.out[-1]) == (0, note)
    assert [line.split()[0] for line in done.out if "│" in line] == TEXT.split()


def test_its_blanks_are_filled(attent, folder: Path) -> None:
    done = attent("fill", folder, "the cat was [MASK]", "--top-k", 3)
    assert (done.code, done.err) == (0, ["line 1: unknown to this model: 'cat'"])
    assert len([line for line in done.out if " %  " in line]) == 3
    (blank,) = json.loads(attent("fill", folder, TEXT, "--json").out[0])["blanks"]
    assert (blank["place"], [entry["piece"] for entry in blank["looks"]]) == (4, ["[CLS]", *TEXT.split(), "[SEP]"])


def test_a_text_is_explored(attent, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenes: list[Any] = []
    monkeypatch.setattr(ExploreServer, "wait", lambda server: scenes.extend(server.explorer.scenes.fixed))
    assert attent("explore", folder, "--text", TEXT, "--port", 0, "--no-open").code == 0
    (tmp_path / "text.txt").write_text("the dog\nwas\n", encoding="utf-8")
    assert attent("explore", folder, "--file", tmp_path / "text.txt", "--port", 0, "--no-open").code == 0
    assert [[*scene.texts["tokens"].labels] for scene in scenes] == [
        ["[CLS]", *TEXT.split(), "[SEP]"],
        ["[CLS]", "the", "dog", "was", "[SEP]"],
    ]
    assert "exactly one text or picture: give --text or --file" in attent("explore", folder, "--no-open").err[0]
    assert "cannot be compared" in attent("explore", folder, folder, "--text", TEXT, "--no-open").err[0]


def test_other_commands_say_which_take_it(refused, folder: Path) -> None:
    says = f"{folder} is a Hugging Face model, not a run folder: use it with attent show, explore, fill or generate"
    for command in ("describe", "evaluate", "quantize"):
        assert refused(command, folder) == says
    for command in ("translate", "walk"):
        assert refused(command, folder, "text") == says
    for option, value, reason in (
        ("--kind", "cross", "no group 'cross'; there are self"),
        ("--layer", 2, "layer must be from 0 to 1, got 2"),
        ("--head", 3, "head must be from 0 to 2, got 3"),
        ("--translation", "le chien", "is not an encoder–decoder"),
    ):
        assert reason in refused("show", folder, TEXT, option, value)


@pytest.mark.parametrize("command", ["show", "fill"])
def test_a_name_that_is_nowhere(refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    hub: Any = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    says = "no-such/model is not a run folder, nor a model in Hugging Face's local cache; --download fetches a model"
    assert refused(command, "no-such/model", TEXT) == says
    fetched = refused(command, "no-such/model", TEXT, "--download")
    assert fetched.startswith("no-such/model is not a run folder, and cannot be fetched")
    (tmp_path / "empty").mkdir()
    assert refused(command, tmp_path / "empty", TEXT).endswith("empty is not a run folder: it has no config.json")
    assert refused(command, tmp_path / "nothing", TEXT).endswith("is not a run folder: there is no such folder")
