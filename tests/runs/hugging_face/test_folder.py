"""Folders that are refused: one line each, which says why, and nothing of them is run."""

import json
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import random_translators
import torch
from safetensors.torch import load_file, save_file

from attent.errors import RunError
from attent.runs.hugging_face import folder, import_run, read
from attent.runs.hugging_face.folder import SourceFolder

pytest.importorskip("transformers", reason="transformers is not installed")
Change = Callable[[Path], object]


def config(**values: object) -> Change:
    def change(folder: Path) -> None:
        content = json.loads((folder / "config.json").read_text("utf-8"))
        (folder / "config.json").write_text(json.dumps(content | values), "utf-8")

    return change


def tensors(change_tensors: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Change:
    def change(folder: Path) -> None:
        file = folder / "model.safetensors"
        save_file(change_tensors(load_file(file)), file)

    return change


def without(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def text(name: str, content: str) -> Change:
    return lambda folder: (folder / name).write_text(content, "utf-8")


def truncated(name: str) -> Change:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-100])


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    # reading it by pickle would run what it names
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch imported'\ntR.")


def marian_itself(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "model.npz").write_bytes(b"")


def indexed(files: object) -> Change:
    return text("model.safetensors.index.json", json.dumps({"weight_map": files}))


SHARED = "model.shared.weight"
REFUSED: dict[str, tuple[Change, str]] = {
    "pickled": (pickled, r"its weights are pickled \(pytorch_model.bin\), which can run code"),
    "no weights": (without("model.safetensors"), "model.safetensors is missing"),
    "truncated": (truncated("model.safetensors"), "model.safetensors is missing or damaged"),
    "no vocabulary": (without("vocab.json"), "vocab.json is missing or damaged"),
    "no pieces": (without("source.spm"), "source.spm is missing"),
    "truncated pieces": (truncated("target.spm"), "target.spm: not a SentencePiece model"),
    "no config": (without("config.json"), "config.json is missing"),
    "no json": (text("config.json", "{"), "config.json is missing or damaged: it is not valid JSON"),
    "marian itself": (marian_itself, "model.npz is damaged"),
    "another family": (config(model_type="t5"), "model_type must be one of marian, m2m_100, got 't5'"),
    "lying width": (config(d_model=4096), "must be .* by config.json, got"),
    "huge": (config(d_model=2**40, max_position_embeddings=2**40), "max_position_embeddings must be|d_model must be"),
    "many layers": (config(encoder_layers=3), "model.encoder.layers.2.* is missing from its weights"),
    "endless layers": (config(encoder_layers=10**12), "encoder_layers must be"),
    "few layers": (config(decoder_layers=1), "has no place in its model"),
    "lying vocabulary": (config(vocab_size=10, decoder_vocab_size=10), "ids up to|must be an id below 10"),
    "no number": (config(encoder_ffn_dim="48"), "encoder_ffn_dim must be a whole number"),
    "another activation": (config(activation_function="tanh"), "activation_function must be one of .*, got 'tanh'"),
    "heads that differ": (config(decoder_attention_heads=2), "_heads and decoder_attention_heads must be equal"),
    "pre-norm": (config(normalize_before=True), "normalize_before"),
    "an end that is none": (
        lambda folder: (config(eos_token_id=9)(folder), (folder / "generation_config.json").unlink()),
        "eos_token_id is 9",
    ),
    "ssru": (
        tensors(lambda tensor: tensor | {"model.decoder.layers.0.rnn.weight": torch.zeros(2)}),
        r"a recurrent decoder \(SSRU\), which attent reads from Marian's own files alone",
    ),
    "whole numbers": (tensors(lambda own: own | {SHARED: own[SHARED].to(torch.int8)}), "must contain floating-point"),
    "not finite": (tensors(lambda own: own | {SHARED: own[SHARED] / 0}), "not finite"),
    "untied": (tensors(lambda own: own | {"lm_head.weight": own[SHARED] + 1}), "differs from model.shared.weight"),
    "elsewhere": (indexed({SHARED: "../model.safetensors"}), "must name safetensors files in the folder"),
    "index without its file": (indexed({SHARED: "model-1.safetensors"}), "model-1.safetensors is missing"),
    "ids that are none": (text("vocab.json", '{"a": "b"}'), "must map pieces to ids"),
    "ids twice": (text("vocab.json", '{"a": 1, "b": 1}'), "two pieces have the same id"),
    "no end": (text("vocab.json", '{"<unk>": 1}'), "</s> is missing in its vocabulary"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    random_translators.marian(folder)
    return folder


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_that_cannot_be_imported_is_refused_in_one_line(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    change, says = REFUSED[name]
    shutil.copytree(model, tmp_path / "model")
    change(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match=says) as refusal:
        import_run(tmp_path / "model", tmp_path / "run")
    assert "\n" not in str(refusal.value)
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


# Sizes of config.json that must be the same.
SIZES = (
    ["d_model"],
    ["encoder_layers"],
    ["encoder_ffn_dim", "decoder_ffn_dim"],
    ["encoder_attention_heads", "decoder_attention_heads"],
    ["max_position_embeddings"],
    ["vocab_size", "decoder_vocab_size"],
)


@pytest.mark.parametrize("family", ["marian", "m2m100"])
def test_sizes_that_the_weights_do_not_have_are_refused_before_memory_is_taken(
    tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python counts what a reader may read as memory
    monkeypatch.setattr(folder, "LARGEST_JSON", 2**20)
    monkeypatch.setattr(folder, "LARGEST_MODEL", 2**20)
    getattr(random_translators, family)(tmp_path / "model")
    languages = () if family == "marian" else ("en", "fr")
    read(tmp_path / "model", *languages)
    settings = json.loads((tmp_path / "model" / "config.json").read_text("utf-8"))
    for names in SIZES:
        for value in (2**18, 2**22):
            changed = settings | {name: value for name in names if name in settings}
            (tmp_path / "model" / "config.json").write_text(json.dumps(changed), "utf-8")
            tracemalloc.start()
            try:
                with pytest.raises(RunError, match=r"cannot be imported: \S[^\n]*$"):
                    read(tmp_path / "model", *languages)
                assert tracemalloc.get_traced_memory()[1] < 10_000_000, names
            finally:
                tracemalloc.stop()


def test_languages_are_asked_for_and_known(tmp_path: Path) -> None:
    random_translators.m2m100(tmp_path / "model")
    with pytest.raises(RunError, match=r"100 languages .*the source language is not given: set --source-language"):
        read(tmp_path / "model")
    with pytest.raises(RunError, match="the target language 'xx' is unknown: set --target-language"):
        read(tmp_path / "model", "en", "xx")


def test_several_files_are_one_model(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "model")
    inputs = load_file(tmp_path / "model" / "model.safetensors")
    (tmp_path / "model" / "model.safetensors").unlink()
    names = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(inputs)}
    for file in set(names.values()):
        save_file({name: inputs[name] for name in inputs if names[name] == file}, tmp_path / "model" / file)
    indexed(names)(tmp_path / "model")
    for first, second in zip(read(model).model.parameters(), read(tmp_path / "model").model.parameters(), strict=True):
        assert torch.equal(first, second)


def test_the_licence_is_the_cards(model: Path, tmp_path: Path) -> None:
    shutil.copy(model / "config.json", tmp_path)
    for card, licence in (
        ("---\nlicense: apache-2.0\ntags:\n- x\n---\n", "apache-2.0"),
        ("# A model\n", None),
        ("---\ntags: x\n---\nlicense: mit\n", None),
    ):
        (tmp_path / "README.md").write_text(card, "utf-8")
        assert SourceFolder(tmp_path).licence == licence
