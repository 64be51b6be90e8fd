"""The run folder of an untrained masked language model."""

from __future__ import annotations

from pathlib import Path

import pytest

from attent.runs.folder import RunConfig, RunWriter
from attent.tasks.fill_mask.fill_mask import FillMask


@pytest.fixture
def filler_folder(filler: FillMask, tmp_path: Path) -> Path:
    size = filler.tokenizer.size
    config = RunConfig(
        task="fill-mask", tokenizers={"text": "word"}, sizes=(size + 1, size), model=filler.model.settings
    )
    with RunWriter(tmp_path / "fills") as run:
        run.finish(config, filler.model, filler.tokenizer)
    return tmp_path / "fills"
