"""What every test shares: one thread, one seed, and the folder of corpora."""

from __future__ import annotations

import os
import random
from pathlib import Path

import hypothesis
import numpy
import pytest
import torch
from jaxtyping import install_import_hook

# Shapes in the signatures of internals are checked whenever the tests run them. Public edges check themselves and raise
# errors of their own, which the checker would come before; graph compilers do not see through it.
TYPED = ("attent.layers.embeddings", "attent.models.transformer_layers", "attent.training.loss", "attent.decoding.search")
install_import_hook(TYPED, "beartype.beartype")

ROOT = Path(__file__).parents[1]

# The tests' tensors are so small that a second thread costs more than it brings.
torch.set_num_threads(1)

hypothesis.settings.register_profile("attent", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("attent")

SMALL = """
[dates]
locales = ["en", "fr"]
training_pairs = 64
validation_pairs = 8
held_out_dates = 20
held_out_pairs = 8
held_out_combinations = 2

[model]
encoder_layers = 2
decoder_layers = 2
width = 8
feed_forward = 8
heads = 2
dropout = 0.0

[training]
updates = 2
batch_pairs = 8
precision = "float32"
"""


@pytest.fixture(autouse=True)
def seeds() -> None:
    """Every test starts from the same random numbers, in whichever order they run."""
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of corpora: ATTENT_DATA, else ../shared/data beside the repository."""
    named = os.environ.get("ATTENT_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no corpora: {folder} is not a folder (ATTENT_DATA names it)")
    return folder


@pytest.fixture(scope="session")
def settings_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Settings of a run that takes less than a second."""
    file = tmp_path_factory.mktemp("settings") / "small.toml"
    file.write_text(SMALL, encoding="utf-8")
    return file
