"""Folders of Hugging Face models as save_pretrained writes them, with random weights.

What is shown, filled in and refused.
"""

from __future__ import annotations

import inspect
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attent.errors import ArgumentError, DataError, RunError
from attent.tasks.pretrained import PretrainedModel, find, load

TEXT = "the dog was [MASK] so it slept"
WORDS = [*TEXT.replace("[MASK] ", "").split(), "le", "chien", "dormait"]


def saved_tokenizer(folder: Path, *, encloses: bool = False, ends: bool = False) -> None:
    """Save a tokenizer of single words, which puts texts between [CLS] and [SEP], or ends them with </s>."""
    import tokenizers
    import transformers

    specials = ["[PAD]", "[CLS]", "</s>", "[UNK]", "[MASK]", "[SEP]"]
    vocabulary = {word: number for number, word in enumerate([*specials, *WORDS])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    template = "[CLS] $A [SEP]" if encloses else "$A </s>" if ends else "$A"
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=template, special_tokens=[(word, vocabulary[word]) for word in specials]
    )
    names = {f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "MASK", "CLS", "SEP")}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)


@pytest.fixture(scope="module")
def folders(models: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a folder of each model, by its name."""
    transformers = models.transformers
    folder = tmp_path_factory.mktemp("models")
    for name in ("bert", "gpt2", "t5", "marian", "vit"):
        model, _ = getattr(models, name)()
        model.save_pretrained(folder / name)
        if name != "vit":
            saved_tokenizer(folder / name, encloses=name == "bert", ends=name in ("t5", "marian"))
    bert, _ = models.bert()
    torch.manual_seed(0)
    transformers.BertForMaskedLM(bert.config).save_pretrained(folder / "masked")
    saved_tokenizer(folder / "masked", encloses=True)
    transformers.ViTImageProcessor(size={"height": 12, "width": 12}).save_pretrained(folder / "vit")
    return folder


def copied(folders: Path, name: str, to: Path) -> Path:
    return Path(shutil.copytree(folders / name, to / name))


def test_an_encoder_shows_what_eager_attention_computes(folders: Path, models: Any) -> None:
    model = load(folders / "bert")
    with pytest.raises(ArgumentError, match="reads a text, as a string, got 3"):
        model.map(3)
    maps = model.map("the dog slept")
    assert list(maps) == ["encoder.layer.0.attention.self", "encoder.layer.1.attention.self"]
    eager, _ = models.bert("eager")
    with torch.no_grad():
        expected = eager(torch.tensor([[1, 6, 7, 11, 5]]), output_attentions=True).attentions
    for labelled, weights in zip(maps.values(), expected, strict=True):
        assert labelled.rows == labelled.columns == ("[CLS]", "the", "dog", "slept", "[SEP]")
        torch.testing.assert_close(labelled.weights.dense(), weights, atol=1e-5, rtol=0.0)
    (group,) = model.scene("the dog slept").groups
    assert (group.name, len(group.layers), group.shape) == ("self", 2, (3, 5, 5))


def test_a_model_that_cannot_be_watched_returns_its_weights(models: Any, folders: Path, tmp_path: Path) -> None:
    module = inspect.getmodule(models.transformers.MPNetModel)
    if "ALL_ATTENTION_FUNCTIONS" in inspect.getsource(module):
        pytest.skip(f"MPNet of transformers {models.transformers.__version__} calls the attention interface")
    sizes = {"vocab_size": 15, "hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 17}
    config = models.transformers.MPNetConfig(**sizes, num_hidden_layers=2, max_position_embeddings=13)
    models.transformers.MPNetForMaskedLM(config).save_pretrained(tmp_path)
    saved_tokenizer(tmp_path, encloses=True)
    model = load(tmp_path)
    assert [labelled.weights.shape for labelled in model.map("the dog slept").values()] == [(1, 3, 5, 5)] * 2
    assert model.scene("the dog slept").groups[0].is_distribution
    (prediction,) = model.fill(TEXT)
    assert sum(piece.weight for piece in prediction.attention) == pytest.approx(1, abs=1e-5)
    model.model.config.attention_window = 4
    assert "there is no attention to show" in _says(model.map, "the dog slept")


def test_a_decoder_reads_a_text_and_sees_no_later_token(folders: Path) -> None:
    maps = load(folders / "gpt2").map("the dog slept")
    assert [labelled.rows for labelled in maps.values()] == [("the", "dog", "slept")] * 2
    for labelled in maps.values():
        assert not labelled.weights.dense().triu(1).any()


@pytest.mark.parametrize("name", ["t5", "marian"])
def test_an_encoder_decoder_writes_greedily_unless_told_what(folders: Path, name: str) -> None:
    model = load(folders / name)
    maps = model.map("the dog slept", "le chien dormait")
    kinds = {labelled.weights.shape[-2:]: (labelled.rows, labelled.columns) for labelled in maps.values()}
    source, target = ("the", "dog", "slept", "</s>"), ("le", "chien", "dormait", "</s>")
    assert set(kinds.values()) <= {(source, source), (target, source), (target, ("[PAD]", *target[:-1]))}
    groups = model.scene("the dog slept", "le chien dormait").groups
    assert {group.name for group in groups} == {"cross", "encoder", "decoder"}
    model.model.generation_config.eos_token_id = None
    model.model.config.max_position_embeddings = 6
    written = model.map("the dog slept")
    options = {"do_sample": False, "num_beams": 1, "max_new_tokens": 5}
    with torch.no_grad():
        tokens = model.model.generate(torch.tensor([[6, 7, 11, 2]]), **options)[0].tolist()
    cross = next(labelled for path, labelled in written.items() if "enc" in path.lower().rsplit(".", 1)[-1])
    assert cross.weights.shape == (1, cross.weights.shape[1], 5, 4)
    names = [model.tokenizer.convert_ids_to_tokens(token) for token in tokens[1:]]
    assert list(cross.rows) == [name or f"<{token}>" for name, token in zip(names, tokens[1:], strict=True)]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_reads_a_text_and_a_picture_is_refused_in_plain_words(models: Any, tmp_path: Path) -> None:
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 17}
    special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    text = {"vocab_size": 15, "max_position_embeddings": 13, **special, **sizes}
    picture = {"image_size": 12, "patch_size": 4, **sizes}
    config = models.transformers.CLIPConfig(text_config=text, vision_config=picture, projection_dim=12)
    models.transformers.CLIPModel(config).save_pretrained(tmp_path)
    saved_tokenizer(tmp_path)
    expected = "CLIPModel reads a text and a picture together; attent shows models that read one of the two"
    assert _says(load(tmp_path).map, "the dog slept") == expected


def test_the_encoder_of_an_encoder_decoder_alone(models: Any, tmp_path: Path) -> None:
    config = models.transformers.T5Config(vocab_size=15, d_model=12, d_kv=4, d_ff=17, num_layers=2, num_heads=3)
    models.transformers.T5EncoderModel(config).save_pretrained(tmp_path)
    saved_tokenizer(tmp_path, ends=True)
    maps = load(tmp_path).map("the dog slept")
    tokens = ("the", "dog", "slept", "</s>")
    assert [(labelled.rows, labelled.columns) for labelled in maps.values()] == [(tokens, tokens)] * 2


def test_a_picture_comes_with_its_patches(folders: Path, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="pictures need Pillow")
    pixels = np.zeros((12, 12, 3), np.uint8)
    pixels[:4, 4:8] = (255, 128, 0)
    image.fromarray(pixels).save(tmp_path / "patch.png")
    model = load(folders / "vit")
    scene = model.scene(str(tmp_path / "patch.png"))
    assert scene.picture is not None
    assert (scene.picture.grid, scene.picture.before) == ((3, 3), 1)
    np.testing.assert_allclose(scene.picture.pixels, pixels / 255, atol=1e-2)
    assert scene.texts["tokens"].labels[:3] == ("CLS", "patch 1,1", "patch 1,2")
    (group,) = scene.groups
    assert group.shape == (3, 10, 10)
    with pytest.raises(DataError, match="cannot be read"):
        model.map("nothing.png")


def test_blanks_are_filled(folders: Path) -> None:
    model = load(folders / "masked")
    (prediction,) = model.fill(TEXT, 3)
    with torch.no_grad():
        probs = model.model(torch.tensor([model.tokenizer(TEXT).input_ids])).logits[0, 4].softmax(-1)
    assert prediction.position == 4
    highest = probs[: len(model.tokenizer)].topk(3).values.tolist()
    assert [guess.probability for guess in prediction.guesses] == pytest.approx(highest, abs=1e-6)
    assert [piece.piece for piece in prediction.attention] == ["[CLS]", *TEXT.split(), "[SEP]"]
    assert sum(piece.weight for piece in prediction.attention) == pytest.approx(1, abs=1e-5)
    (of_head,) = model.fill(TEXT, 1, layer=1, head=2)
    expected = list(model.map(TEXT).values())[1].weights.dense()[0, 2, 4]
    assert [piece.weight for piece in of_head.attention] == pytest.approx(expected.tolist(), abs=1e-6)
    assert model.unknown_words("the pizza was [MASK]") == ["pizza"]
    underscored = TEXT.replace("[MASK]", "_____")
    assert model.fill(underscored, 3) == [prediction]
    assert model.unknown_words(f"{underscored} pizza") == ["pizza"]


def test_special_tokens_are_left_out(folders: Path) -> None:
    model = load(folders / "masked")
    assert sorted(model.special_labels) == ["[CLS]", "[PAD]", "[SEP]"]
    scene = model.scene(TEXT).without(model.special_labels)
    assert scene.texts["tokens"].labels == (*TEXT.split(),)
    weights, *_ = [labelled.weights.dense()[0] for labelled in model.map(TEXT).values()]
    inner = weights[:, 1:-1, 1:-1]
    rows = scene.groups[0].layers[0].rows(torch.arange(7))
    torch.testing.assert_close(rows, inner / inner.sum(-1, keepdim=True))
    assert load(folders / "vit").special_labels == ()


def _says(call: Any, *arguments: Any) -> str:
    with pytest.raises((ArgumentError, DataError, RunError)) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_texts_that_a_model_does_not_take(folders: Path) -> None:
    bert, masked, gpt2 = (load(folders / name) for name in ("bert", "masked", "gpt2"))
    assert "ForMaskedLM" in _says(bert.fill, TEXT)
    assert "there is no [MASK] or _____ in 'the dog'" in _says(masked.fill, "the dog")
    assert "head must be from 0 to 2, got 3" in _says(lambda: masked.fill(TEXT, head=3))
    assert "GPT2LMHeadModel does not predict masked words" in _says(gpt2.fill, TEXT)
    assert "without tokens" in _says(gpt2.map, "")
    assert "the text has 14 tokens, more than the 11" in _says(bert.map, "dog " * 12)
    gpt2.model.config.max_position_embeddings = -1
    assert len(gpt2.map("the dog slept")) == 2
    masked.model.base_model.embeddings.position_embeddings = torch.nn.Embedding(3, 12)
    assert "BertForMaskedLM does not read a text by itself" in _says(masked.map, TEXT)
    assert "reads a text, not a translation" in _says(bert.map, "the dog", "le chien")


def test_what_is_no_folder_of_a_model_is_refused(folders: Path, tmp_path: Path) -> None:
    assert find(tmp_path) is None
    assert find(tmp_path / "nothing") is None
    assert "nothing is no folder, and a model must be a folder written by" in _says(load, tmp_path / "nothing")
    assert "has no config.json" in _says(load, tmp_path)
    folder = copied(folders, "bert", tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "has pytorch_model.bin, but attent reads only safetensors" in _says(load, folder)
    for file in folder.glob("tokenizer*"):
        file.unlink()
    (folder / "pytorch_model.bin").rename(folder / "model.safetensors")
    assert "bert has no tokenizer vocabulary: tokenizer.save_pretrained('bert') writes it" in _says(load, folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_a_model_with_code_of_its_own_is_refused(folders: Path, tmp_path: Path, name: str) -> None:
    folder = copied(folders, "bert", tmp_path)
    settings = json.loads((folder / name).read_text(encoding="utf-8"))
    code = "raise SystemError('this ran')"
    (folder / "own.py").write_text(code, encoding="utf-8")
    (folder / name).write_text(json.dumps({**settings, "auto_map": {"AutoModel": "own.Model"}}), encoding="utf-8")
    assert f"{name} names custom code (auto_map)" in _says(load, folder)


def test_damaged_models_are_refused(folders: Path, tmp_path: Path) -> None:
    folder = copied(folders, "bert", tmp_path)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    assert "cannot be loaded" in _says(load, folder)
    (folder / "model.safetensors").write_bytes(weights)
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**settings, "num_hidden_layers": 3}), encoding="utf-8")
    assert "its weights lack encoder.layer.2." in _says(load, folder)
    (folder / "config.json").write_text(json.dumps({**settings, "model_type": "no-such-type"}), encoding="utf-8")
    assert "cannot be loaded" in _says(load, folder)


def test_names_are_looked_up_in_the_cache_alone(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert "nor a model in Hugging Face's local cache; --download" in _says(find, "owner/bert")
    commit = "0" * 40
    cached = tmp_path / "models--owner--bert"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(commit, encoding="utf-8")
    shutil.copytree(folders / "bert", cached / "snapshots" / commit)
    location = find("owner/bert")
    assert location == cached / "snapshots" / commit
    assert isinstance(load(location), PretrainedModel)


def test_a_name_is_fetched_if_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    fetched: dict[str, Any] = {}

    def snapshot_download(name: str, **options: Any) -> str:
        fetched.update(options, name=name)
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    assert find("owner/name", download=True) == tmp_path
    assert (fetched["name"], fetched["local_files_only"]) == ("owner/name", False)
    # neither pickles nor code are fetched
    assert not {"*", "*.bin", "*.py"} & {*fetched["allow_patterns"]}


def test_without_transformers_the_extra_is_named(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "in a clone of attent, pip install '.[transformers]'" in _says(load, folders / "bert")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "in a clone of attent, pip install '.[transformers]'" in _says(find, "owner/name")
