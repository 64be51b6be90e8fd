import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from attent.errors import ArgumentError, RunError
from attent.models.build import build
from attent.models.settings import EncoderSettings, RnnSettings, TransformerSettings
from attent.runs.weights import check_sizes, fill, read_tensors, shapes_in, tensors_of, write_tensors


def tied() -> nn.Module:
    module = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5))
    module[1].weight = module[0].weight
    return module


def test_what_is_written_is_read(tmp_path: Path) -> None:
    first, second = tied(), tied()
    write_tensors(tensors_of(first), tmp_path / "a.safetensors")
    assert set(read_tensors(tmp_path / "a.safetensors")) == {"0.weight", "1.bias"}
    fill(tensors_of(second), tmp_path / "a.safetensors")
    assert all(torch.equal(value, second.state_dict()[name]) for name, value in first.state_dict().items())
    assert second[1].weight is second[0].weight
    write_tensors({}, tmp_path / "a.safetensors")
    assert read_tensors(tmp_path / "a.safetensors") == {}


WEIGHT, BIAS = {"0.weight": torch.zeros(5, 3)}, {"1.bias": torch.zeros(5)}


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        (WEIGHT, r"1\.bias is missing"),
        (WEIGHT | BIAS | {"2.bias": torch.zeros(2)}, r"2\.bias has no place in the model"),
        (BIAS | {"0.weight": torch.zeros(5, 2)}, r"0\.weight must be \(5, 3\), got \(5, 2\)"),
        (BIAS | {"0.weight": torch.ones(5, 3).long()}, r"0\.weight must be torch\.float32, got torch\.int64"),
        *(
            (WEIGHT | {"1.bias": torch.tensor([0, 1, 2, value, 3])}, r"1\.bias contains values that are not finite")
            for value in (float("nan"), float("inf"), float("-inf"))
        ),
    ],
)
def test_nothing_is_filled_unless_all_of_it_fits(tmp_path: Path, tensors: dict[str, torch.Tensor], says: str) -> None:
    write_tensors(tensors, tmp_path / "a.safetensors")
    built = tied()
    before = {name: value.clone() for name, value in built.state_dict().items()}
    with pytest.raises(RunError, match=rf"a\.safetensors is damaged: {says}$"):
        fill(tensors_of(built), tmp_path / "a.safetensors")
    assert all(torch.equal(value, before[name]) for name, value in built.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_another_precision_is_filled_in(tmp_path: Path, dtype: torch.dtype) -> None:
    built = tied()
    write_tensors({name: tensor.to(dtype) for name, tensor in tensors_of(built).items()}, tmp_path / "a.safetensors")
    fill(tensors_of(second := tied()), tmp_path / "a.safetensors")
    torch.testing.assert_close(second[1].bias, built[1].bias, atol=1e-3, rtol=0)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"nothing")
    for name in ("a.safetensors", "b.safetensors"):
        with pytest.raises(RunError, match=f"{name} is missing or damaged"):
            read_tensors(tmp_path / name)
    (tmp_path / "a.safetensors").write_bytes((2**60).to_bytes(8, "little") + b"{}")
    with pytest.raises(RunError, match="its header claims to have more than 16,777,216 bytes"):
        shapes_in(tmp_path / "a.safetensors")


def test_shapes_are_read_without_the_tensors_and_expected_of_some(tmp_path: Path) -> None:
    write_tensors({"a/moment": torch.zeros(5, 3), "a/step": torch.tensor(2.0)}, tmp_path / "a.safetensors")
    assert shapes_in(tmp_path / "a.safetensors") == {"a/moment": (5, 3), "a/step": ()}
    assert set(read_tensors(tmp_path / "a.safetensors", lambda _: torch.zeros(5, 3))) == {"a/moment", "a/step"}
    with pytest.raises(RunError, match=r"a/moment must be \(5, 2\), got \(5, 3\)$"):
        read_tensors(tmp_path / "a.safetensors", lambda _: torch.zeros(5, 2))
    write_tensors({"a/moment": torch.full((5, 3), float("inf"))}, tmp_path / "a.safetensors")
    with pytest.raises(RunError, match=r"a\.safetensors is damaged: a/moment contains values that are not finite$"):
        read_tensors(tmp_path / "a.safetensors", lambda _: torch.zeros(5, 3))
    write_tensors({"a/moment": torch.zeros(5, 3, dtype=torch.int32)}, tmp_path / "a.safetensors")
    with pytest.raises(RunError, match=r"a/moment must be torch\.float32, got torch\.int32$"):
        read_tensors(tmp_path / "a.safetensors", lambda _: torch.zeros(5, 3))


SMALL = {"width": 8, "feed_forward": 5, "heads": 2}
MODELS = [
    TransformerSettings(encoder_layers=1, decoder_layers=2, **SMALL),
    TransformerSettings(
        encoder_layers=1, decoder_layers=1, score="additive", normalizer="entmax15", position="relative_bias", **SMALL
    ),
    TransformerSettings(
        encoder_layers=1, decoder_layers=1, position="learned", share_embeddings="none", norm="pre", **SMALL
    ),
    RnnSettings(width=8, embedding_width=6),
    RnnSettings(
        width=8, embedding_width=6, attention="luong", local="p", layer_norm=True, cell="lstm", encoder_layers=2
    ),
    EncoderSettings(layers=1, input="vectors", cls=True, position="rotary", **SMALL),
]


@pytest.mark.parametrize("settings", MODELS)
def test_a_model_has_the_sizes_of_its_own_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    file = tmp_path / "model.safetensors"
    write_tensors(tensors_of(build(settings, 11, 7)), file)
    # importing PyTorch's compiler takes seconds
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)
    random = torch.get_rng_state()
    check_sizes(settings, 11, 7, file)
    assert torch.equal(torch.get_rng_state(), random)
    with pytest.raises(RunError, match=r"model\.safetensors is damaged: \S+ must be \(.*13.*\), got \(.*11.*\)$"):
        check_sizes(settings, 13, 7, file)


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"decoder_layers": 10**8}, ArgumentError, r"decoder_layers = 100,000,000, and m\.safetensors has 70 tensors"),
        ({"width": 8192}, RunError, r"m\.safetensors is damaged: \S+ must be \(.*8192.*\), got"),
        ({"width": 2**40, "heads": 2**40}, ArgumentError, "sizes too large for memory: "),
        ({"width": 10**30}, ArgumentError, "sizes too large for memory: "),
        ({"feed_forward": 2**50}, RunError, r"must be \(1125899906842624, 8\), got \(5, 8\)"),
    ],
)
def test_sizes_are_refused_before_memory_is_taken(
    tmp_path: Path, changes: dict[str, int], error: type[Exception], says: str
) -> None:
    write_tensors(tensors_of(build(MODELS[0], 11, 7)), file := tmp_path / "m.safetensors")
    start = time.monotonic()
    with pytest.raises(error, match=says) as caught:
        check_sizes(MODELS[0].model_copy(update=changes), 11, 7, file)
    assert time.monotonic() - start < 5
    assert "\n" not in str(caught.value)
