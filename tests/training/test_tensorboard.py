import subprocess
import sys
import types
from pathlib import Path

import pytest

from attent.errors import ArgumentError
from attent.training.tensorboard import TensorBoard, check_installed


def test_it_is_asked_for_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ArgumentError, match=r"needs TensorBoard: pip install 'attent\[tensorboard\]' \("):
        check_installed()


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


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="what TensorBoard reads needs TensorBoard")
    code = """
import sys
from attent.training.tensorboard import TensorBoard
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
for update, losses in ((0, (3.0, 2.0, 9.0)), (2, (1.0,))):
    board = TensorBoard(sys.argv[1], update)
    for step, loss in enumerate(losses, update + 1):
        board.log({"update": step, "loss": loss})
events = EventAccumulator(sys.argv[1] + "/tensorboard").Reload()
print([(event.step, event.value) for event in events.Scalars("training/loss")])
"""
    # in a process of its own, for TensorBoard's imports warn
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["[(1, 3.0), (2, 2.0), (3, 1.0)]"], done.stderr
