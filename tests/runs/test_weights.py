import subprocess
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


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({"0.weight": (5, 3)}, r"1\.bias is missing"),
        ({"0.weight": (5, 3), "1.bias": (5,), "2.bias": (2,)}, r"2\.bias has no place in the model"),
        ({"0.weight": (5, 2), "1.bias": (5,)}, r"0\.weight must be \(5, 3\), got \(5, 2\)"),
    ],
)
def test_nothing_is_filled_unless_all_of_it_fits(
    tmp_path: Path, tensors: dict[str, tuple[int, ...]], says: str
) -> None:
    write_tensors({name: torch.zeros(shape) for name, shape in tensors.items()}, tmp_path / "a.safetensors")
    built = tied()
    before = {name: value.clone() for name, value in built.state_dict().items()}
    with pytest.raises(RunError, match=rf"a\.safetensors is damaged: {says}$"):
        fill(tensors_of(built), tmp_path / "a.safetensors")
    assert all(torch.equal(value, before[name]) for name, value in built.state_dict().items())


def test_no_tensors_are_a_file_too(tmp_path: Path) -> None:
    write_tensors({}, tmp_path / "a.safetensors")
    assert read_tensors(tmp_path / "a.safetensors") == {}


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"nothing")
    for name in ("a.safetensors", "b.safetensors"):
        with pytest.raises(RunError, match=f"{name} is missing or damaged"):
            read_tensors(tmp_path / name)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    built = tied()
    with torch.no_grad():
        built[1].bias[3] = value
    write_tensors(tensors_of(built), tmp_path / "a.safetensors")
    with pytest.raises(RunError, match=r"a\.safetensors is damaged: 1\.bias contains values that are not finite$"):
        fill(tensors_of(tied()), tmp_path / "a.safetensors")


def test_another_kind_of_number_is_refused_and_another_precision_is_not(tmp_path: Path) -> None:
    built = tied()
    for dtype in (torch.float16, torch.float64):
        write_tensors(
            {name: tensor.to(dtype) for name, tensor in tensors_of(built).items()}, tmp_path / "a.safetensors"
        )
        fill(tensors_of(tied()), tmp_path / "a.safetensors")
    content = (tmp_path / "a.safetensors").read_bytes().replace(b'"F64"', b'"I64"')
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(RunError, match=r"a\.safetensors is damaged: \S+ must be torch\.float32, got torch\.int64$"):
        fill(tensors_of(built), tmp_path / "a.safetensors")


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


def test_a_header_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes((2**60).to_bytes(8, "little") + b"{}")
    with pytest.raises(RunError, match="its header claims to have more than 16,777,216 bytes"):
        shapes_in(tmp_path / "a.safetensors")


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


def written(settings: Any, folder: Path) -> Path:
    write_tensors(tensors_of(build(settings, 11, 7)), folder / "model.safetensors")
    return folder / "model.safetensors"


@pytest.mark.parametrize("settings", MODELS)
def test_a_model_has_the_sizes_of_its_own_weights(tmp_path: Path, settings: Any) -> None:
    random = torch.get_rng_state()
    check_sizes(settings, 11, 7, written(settings, tmp_path))
    torch.set_rng_state(random)
    check_sizes(settings, 11, 7, tmp_path / "model.safetensors")
    assert torch.equal(torch.get_rng_state(), random)
    with pytest.raises(RunError, match=r"model\.safetensors is damaged: \S+ must be \(.*13.*\), got \(.*11.*\)$"):
        check_sizes(settings, 13, 7, tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        (
            {"encoder_layers": 10**7},
            ArgumentError,
            r"encoder_layers = 10,000,000, and model\.safetensors has 70 tensors",
        ),
        ({"decoder_layers": 10**8}, ArgumentError, "decoder_layers = 100,000,000"),
        ({"width": 8192}, RunError, r"model\.safetensors is damaged: \S+ must be \(.*8192.*\), got"),
        ({"width": 2**40, "heads": 2**40}, ArgumentError, "sizes too large for memory: "),
        ({"width": 10**30}, ArgumentError, "sizes too large for memory: "),
        ({"feed_forward": 2**50}, RunError, r"must be \(1125899906842624, 8\), got \(5, 8\)"),
    ],
)
def test_sizes_are_refused_before_memory_is_taken(
    tmp_path: Path, changes: dict[str, int], error: type[Exception], says: str
) -> None:
    file, start = written(MODELS[0], tmp_path), time.monotonic()
    with pytest.raises(error, match=says) as caught:
        check_sizes(MODELS[0].model_copy(update=changes), 11, 7, file)
    assert time.monotonic() - start < 5
    assert "\n" not in str(caught.value)


def test_a_compiler_is_not_imported_for_it(tmp_path: Path) -> None:
    """PyTorch's takes seconds."""
    file = written(TransformerSettings(), tmp_path)
    program = f"""
import sys
from pathlib import Path
from attent.models.settings import TransformerSettings
from attent.runs.weights import check_sizes
check_sizes(TransformerSettings(), 11, 7, Path({str(file)!r}))
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
