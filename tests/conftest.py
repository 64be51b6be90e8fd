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
