import io
import subprocess
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import torch

from attent.errors import ArgumentError
from attent.training.progress import (
    MODULE,
    Meter,
    Progress,
    check_installed,
    format_duration,
    open_logger,
)
from attent.training.settings import TrainingSettings

RECORD = {"update": 120, "loss": 1.25, "tokens_per_second": 12345.6, "learning_rate": 1e-3, "seconds": 30.0}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (61.4, "1:01"), (3599.6, "1:00:00"), (7325, "2:02:05")])
def test_clock(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_file_gets_few_lines_and_always_the_last() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    progress.show(RECORD, 0.25)
    progress.show(RECORD, 0.5)
    progress.show(RECORD, 1.0)
    progress.close()
    first, last = stream.getvalue().splitlines()
    assert first == "update 120  loss 1.2500 nats/token  12,346 tokens/s  rate 1.00e-03  0:30 elapsed, 1:30 left"
    assert last.endswith("0:00 left")
    stream = io.StringIO()
    Progress(stream).show(RECORD, 1.0, "example")
    assert stream.getvalue().startswith("update 120  loss 1.2500 nats/example  12,346 examples/s  rate")


def test_what_is_said_is_shown_as_no_terminal_obeys_it() -> None:
    stream = io.StringIO()
    progress = Progress(stream)
    # nothing is said of no scores
    progress.say_scores(3, {})
    progress.say("a  →  \x1b[2Jb\tc")
    assert stream.getvalue() == "a  →  \\u001b[2Jb\tc\n"


@pytest.mark.parametrize(
    ("update", "seconds", "done", "left"),
    [
        (1, 1.2, 1e-6, ""),
        (9, 60.0, 1e-3, ""),
        (10, 4.0, 1e-3, ""),
        (10, 5.0, 1e-3, ", 1:23:15 left"),
        (1, 1.0, 0.01, ", 1:39 left"),
        # the last update may end after the minutes that it was given
        (5, 43.0, 1.02, ", 0:00 left"),
        (1, 1.0, 0.0, ""),
    ],
)
def test_there_is_no_estimate_before_it_is_one(update: int, seconds: float, done: float, left: str) -> None:
    stream = io.StringIO()
    Progress(stream).show(RECORD | {"update": update, "seconds": seconds}, done)
    assert stream.getvalue().rstrip().endswith(f"elapsed{left}")


def test_a_terminals_line_is_rewritten() -> None:
    stream = Terminal()
    progress = Progress(stream)
    progress.show(RECORD, 0.25)
    progress.show(RECORD, 0.5)
    assert stream.getvalue().count("\r") == 2
    assert "\n" not in stream.getvalue()
    progress.say_scores(120, {"exact match": 99.5})
    progress.close()
    assert "update 120  exact match 99.5" in stream.getvalue()
    assert stream.getvalue().endswith("\n")


CPU = torch.device("cpu")


def test_a_record_is_the_mean_since_the_last() -> None:
    meter = Meter(CPU)
    meter.add(torch.tensor(9.0), 5)
    assert meter.pop_record(1, 0.1)["loss"] == 9.0
    meter.add(torch.tensor(1.0), 5)
    meter.add(torch.tensor(2.0), 7)
    record = meter.pop_record(3, 0.1)
    assert (record["update"], record["loss"], record["learning_rate"]) == (3, 1.5, 0.1)
    assert record["tokens_per_second"] > 0
    assert meter.seconds >= record["seconds"] > 0


def test_a_record_is_due_after_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attent.training.progress.RECORD_INTERVAL", 0.0)
    meter = Meter(CPU)
    assert not meter.is_due
    meter.add(torch.tensor(1.0), 3)
    assert meter.is_due
    meter.add(torch.tensor(1.0, requires_grad=True) * 2, 3)
    assert not meter.losses.requires_grad


RECORDS: list[Mapping[str, object]] = [
    {"pace": "float32 on 1 thread"},
    {"update": 5, "loss": 2.5, "seconds": 1.0},
    {"update": 6, "seconds": 2.0, "validation": {"loss": 3.0}},
]


def write_records(name: str | None, run: Path) -> None:
    with open_logger(name, run, update=4) as write:
        for record in RECORDS:
            write(record)


def test_tensorboard_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)
    message = r"^--log tensorboard needs TensorBoard: in a clone of attent, pip install '\.\[tensorboard\]'"
    with pytest.raises(ArgumentError, match=message):
        check_installed("tensorboard")


def test_without_a_logger_nothing_is_imported_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)
    write_records(None, tmp_path)
    assert not [*tmp_path.iterdir()]


def install_tensorboard(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType(MODULE)
    module.SummaryWriter = MagicMock()
    writer = module.SummaryWriter.return_value
    writer.__enter__.return_value, writer.__exit__.return_value = writer, False
    monkeypatch.setitem(sys.modules, MODULE, module)
    return module


def test_every_number_is_written_for_tensorboard_under_its_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = install_tensorboard(monkeypatch)
    write_records("tensorboard", tmp_path)
    module.SummaryWriter.assert_called_once_with(str(tmp_path / "tensorboard"), purge_step=5)
    writer = module.SummaryWriter.return_value
    training = [("training/loss", 2.5, 5), ("training/seconds", 1.0, 5), ("training/seconds", 2.0, 6)]
    assert [scalar.args for scalar in writer.add_scalar.call_args_list] == [*training, ("validation/loss", 3.0, 6)]
    writer.flush.assert_called()
    writer.__exit__.assert_called_once()


def test_tensorboard_is_closed_even_if_training_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = install_tensorboard(monkeypatch)
    with pytest.raises(KeyboardInterrupt), open_logger("tensorboard", tmp_path):
        raise KeyboardInterrupt
    module.SummaryWriter.return_value.__exit__.assert_called_once()


def test_settings_omit_a_logger_that_is_not_set() -> None:
    assert "log" not in TrainingSettings(updates=1, batch_pairs=1).table
    assert TrainingSettings(updates=1, batch_pairs=1, log="tensorboard").table["log"] == "tensorboard"


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="what TensorBoard reads needs TensorBoard")
    code = """
import sys
from attent.training.progress import open_logger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
for update, losses in ((0, (3.0, 2.0, 9.0)), (2, (1.0,))):
    with open_logger("tensorboard", sys.argv[1], update) as write:
        write({"pace": "float32 on 1 thread"})
        for step, loss in enumerate(losses, update + 1):
            write({"update": step, "loss": loss, "validation": {"loss": 2 * loss}})
events = EventAccumulator(sys.argv[1] + "/tensorboard").Reload()
for name in ("training/loss", "validation/loss"):
    print([(event.step, event.value) for event in events.Scalars(name)])
"""
    # in a process of its own, for TensorBoard's imports warn
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    expected = ["[(1, 3.0), (2, 2.0), (3, 1.0)]", "[(1, 6.0), (2, 4.0), (3, 2.0)]"]
    assert done.stdout.splitlines() == expected, done.stderr
