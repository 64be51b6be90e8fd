import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import attent
from attent.errors import ArgumentError, RunError
from attent.models.build import build
from attent.models.settings import RnnSettings, TransformerSettings
from attent.ops import native, packed_linear
from attent.ops.packed_linear import WeightType
from attent.runs.config import RunConfig
from attent.runs.folder import RunWriter, read
from attent.runs.packed import use_dtype, write_packed
from attent.runs.weights import digest
from attent.text.tokenizer import WordTokenizer

pytestmark = pytest.mark.needs_native

SETTINGS = TransformerSettings(
    encoder_layers=1, decoder_layers=2, width=24, feed_forward=70, heads=2, share_embeddings="target"
)
TEXTS = ["w1 w2 w3", "w9", "w30 w4 w5 w6 w7"]


def written(folder: Path, settings: TransformerSettings | RnnSettings = SETTINGS) -> Path:
    tokenizer = WordTokenizer([f" w{number}" for number in range(60)])
    with RunWriter(folder / "run") as run:
        config = RunConfig(model=settings, tokenizers={"source": "word", "target": "word"})
        run.finish(config, build(settings, tokenizer.size, tokenizer.size), tokenizer, tokenizer)
    return folder / "run"


def copies(file: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a file that will be written again, which they would otherwise be mapped from."""
    return {name: tensor.clone() for name, tensor in load_file(file).items()}


@pytest.mark.usefixtures("windows")
def test_on_windows_packed_weights_in_use_can_be_removed(tmp_path: Path) -> None:
    run = written(tmp_path)
    write_packed(run, read(run), "int8")
    loaded = attent.load(run)
    before = loaded.search(TEXTS)
    write_packed(run, read(run), "float32")
    assert loaded.search(TEXTS) == before


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_a_quantized_run_computes_as_one_that_is_packed_when_it_is_loaded(tmp_path: Path, dtype) -> None:
    run = written(tmp_path)
    exact, actual = attent.load(run).search(TEXTS), attent.load(run, dtype=dtype).search(TEXTS)
    assert actual != exact
    size = write_packed(run, read(run), dtype)
    assert size == (run / f"model.{dtype}.safetensors").stat().st_size
    loaded = attent.load(run)
    assert loaded.search(TEXTS) == actual
    assert attent.load(run, dtype="float32").search(TEXTS) == exact
    # mapped from the file, and not packed again
    mapped = load_file(run / f"model.{dtype}.safetensors")
    assert mapped.keys() == {"encoder", "decoder", "to_logits", "source_embedding.tokens"}
    for name, packed in mapped.items():
        assert packed_linear.packed_weights(loaded.model.get_submodule(name), list).equal(packed)
    header = 8 + int.from_bytes((run / f"model.{dtype}.safetensors").read_bytes()[:8], "little")
    assert header % 64 == 0
    for part in (loaded.model.encoder, loaded.model.to_logits, loaded.model.source_embedding.tokens):
        assert packed_linear.packed_weights(part, list).data_ptr() % 64 == 0
    write_packed(run, read(run), "float32")
    assert attent.load(run).search(TEXTS) == exact
    assert not [*run.glob("model.*.safetensors")]
    assert set(json.loads((run / "config.json").read_text())["digests"]) == {"model.safetensors"}


def test_a_score_is_that_of_the_search(tmp_path: Path) -> None:
    translator = attent.load(written(tmp_path), dtype="int8")
    for text in TEXTS:
        best = translator.search(text)[0]
        score = translator.score([(text, best.text)])[0]
        if score.tokens == len(best.tokens) + 1:
            assert score.log_probability == pytest.approx(best.log_probability, abs=1e-4)


def test_packed_weights_of_other_weights_are_left_aside(tmp_path: Path) -> None:
    run = written(tmp_path)
    write_packed(run, read(run), "int8")
    tensors = {name: tensor * 1.5 for name, tensor in copies(run / "model.safetensors").items()}
    config = json.loads((run / "config.json").read_text())
    del config["digests"]["model.safetensors"]
    save_file(tensors, run / "model.safetensors")
    (run / "config.json").write_text(json.dumps(config))
    translator = attent.load(run)
    packed = packed_linear.packed_weights(translator.model.to_logits, list) if translator.search(TEXTS) else None
    layer = torch.nn.Linear(24, 64)
    packed_linear.set_kind(layer, WeightType.INT8)
    layer.weight.data, layer.bias = tensors["target_embedding.tokens.weight"], None
    if "to_logits.bias" in tensors:
        layer.bias = torch.nn.Parameter(tensors["to_logits.bias"])
    assert torch.equal(packed, packed_linear.packed_weights(layer, lambda: packed_linear.columns_of(layer)))


def test_damaged_files_are_refused_in_one_line(tmp_path: Path) -> None:
    run = written(tmp_path)
    write_packed(run, read(run), "int8")
    file, config = run / "model.int8.safetensors", json.loads((run / "config.json").read_text())
    good, tensors = file.read_bytes(), copies(file)

    def refused(says: str) -> None:
        with pytest.raises(RunError, match=says):
            attent.load(run)

    file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    refused("is damaged: its SHA-256 does not match")
    file.write_bytes(good[: len(good) // 2])
    refused("is missing or damaged")
    metadata = {"format": "1", "weights": config["digests"]["model.safetensors"]}

    def rewrite(changed: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
        save_file(changed, file, metadata)
        config["digests"][file.name] = digest(file)
        (run / "config.json").write_text(json.dumps(config))

    rewrite(tensors, metadata | {"format": "2"})
    refused("has format '2', but this attent reads 1: rewrite it with attent quantize")
    rewrite(tensors | {"encoder": tensors["encoder"][:-64]}, metadata)
    refused(r"encoder must be \(\d+,\), got")
    rewrite({name: tensor.to(torch.int16) for name, tensor in tensors.items()}, metadata)
    refused("decoder must be bytes")
    file.unlink()
    assert attent.load(run).search(TEXTS)


def test_what_cannot_be_computed_so_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="cannot be computed in int8: it requires a Transformer with dot products"):
        attent.load(written(tmp_path / "a", RnnSettings(width=8)), dtype="int8")
    run = written(tmp_path / "b")
    with pytest.raises(ArgumentError, match="dtype must be float32, bfloat16 or int8, got 'int4'"):
        attent.load(run, dtype="int4")
    with pytest.raises(ArgumentError, match="it requires the CPU"):
        use_dtype(run, read(run), "meta", "int8")
    exact = attent.load(run).translate(TEXTS)
    write_packed(run, read(run), "int8")
    monkeypatch.setattr(native, "library", lambda: None)
    # the run's own choice is no order
    assert attent.load(run).translate(TEXTS) == exact
    with pytest.raises(ArgumentError, match="requires the compiled extension"):
        attent.load(run, dtype="int8")
