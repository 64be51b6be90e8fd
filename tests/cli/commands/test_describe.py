from __future__ import annotations

import shutil
from pathlib import Path

from attent.tasks.translation.translator import load


def test_the_tree_ends_in_all_parameters(attent, run_folder: Path, filling_folder: Path, tmp_path: Path) -> None:
    done = attent("describe", run_folder)
    total = sum(parameter.numel() for parameter in load(run_folder).model.parameters())
    assert done.code == 0
    assert done.out[-1].startswith(f"{total:,} parameters in all")
    assert any("cross_attention" in line for line in done.out)
    # no line is wrapped where there is no terminal
    folder = tmp_path / ("long" * 20) / "run"
    shutil.copytree(run_folder, folder)
    title = attent("describe", folder).out[0]
    assert title.startswith(f"{folder}: ") and title.endswith(" tokens")
    assert attent("describe", filling_folder).out[0].endswith("EncoderModel, 17 text tokens")
