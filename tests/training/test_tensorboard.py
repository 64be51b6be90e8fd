import sys
import types
from pathlib import Path

import pytest

from attent.errors import ArgumentError
from attent.training.tensorboard import TensorBoard, installed


def test_it_is_asked_for_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ArgumentError, match=r"needs TensorBoard \(pip install tensorboard\)"):
        installed()


def test_every_number_is_written_under_its_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int) -> None:
            written.append((folder, purge_step))

        def add_scalar(self, *scalar: object) -> None:
            written.append(scalar)

        def flush(self) -> None:
            pass

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    board = TensorBoard(tmp_path, update=4)
    board.log({"pace": "float32 on 1 thread"})
    board.log({"update": 5, "loss": 2.5, "seconds": 1.0})
    board.log({"update": 6, "seconds": 2.0, "validation": {"loss": 3.0}})
    assert written == [
        (str(tmp_path / "tensorboard"), 5),
        ("training/loss", 2.5, 5),
        ("training/seconds", 1.0, 5),
        ("training/seconds", 2.0, 6),
        ("validation/loss", 3.0, 6),
    ]
