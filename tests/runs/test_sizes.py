import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from attent.errors import ArgumentError, RunError
from attent.models.build import build
from attent.models.settings import EncoderSettings, RnnSettings, TransformerSettings
from attent.runs.sizes import check_sizes
from attent.runs.weights import tensors_of, write_tensors

SMALL = {"width": 8, "feed_forward": 5, "heads": 2}
MODELS = [
    TransformerSettings(encoder_layers=1, decoder_layers=2, **SMALL),
    TransformerSettings(encoder_layers=1, decoder_layers=1, score="additive", normaliser="entmax15", position="relative_bias", **SMALL),
    TransformerSettings(encoder_layers=1, decoder_layers=1, position="learned", share_embeddings="none", norm="pre", **SMALL),
    RnnSettings(width=8, embedding_width=6),
    RnnSettings(width=8, embedding_width=6, attention="luong", local="p", layer_norm=True, cell="lstm", encoder_layers=2),
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
        ({"encoder_layers": 10**7}, ArgumentError, r"encoder_layers = 10,000,000, and model\.safetensors has 70 tensors"),
        ({"decoder_layers": 10**8}, ArgumentError, "decoder_layers = 100,000,000"),
        ({"width": 8192}, RunError, r"model\.safetensors is damaged: \S+ must be \(.*8192.*\), got"),
        ({"width": 2**40, "heads": 2**40}, ArgumentError, "sizes that no memory holds: "),
        ({"width": 10**30}, ArgumentError, "sizes that no memory holds: "),
        ({"feed_forward": 2**50}, RunError, r"must be \(1125899906842624, 8\), got \(5, 8\)"),
    ],
)
def test_sizes_are_refused_before_memory_is_taken(tmp_path: Path, changes: dict[str, int], error: type[Exception], says: str) -> None:
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
from attent.runs.sizes import check_sizes
check_sizes(TransformerSettings(), 11, 7, Path({str(file)!r}))
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
