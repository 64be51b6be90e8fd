import io

import pytest
import torch

from attent.training.progress import Meter, Progress, format_duration

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
