import subprocess
import sys
import types
from collections.abc import Mapping
from pathlib import Path

import pytest

from attent.errors import ArgumentError
from attent.training.progress import LOGGERS, MODULES, TITLES, check_installed, open_loggers, read_id, write_id
from attent.training.settings import TrainingSettings

RECORDS: list[Mapping[str, object]] = [
    {"pace": "float32 on 1 thread"},
    {"update": 5, "loss": 2.5, "seconds": 1.0},
    {"update": 6, "seconds": 2.0, "validation": {"loss": 3.0}},
]


def write_records(name: str, run: Path) -> None:
    with open_loggers([name], run, update=4) as write:
        for record in RECORDS:
            write(record)


@pytest.mark.parametrize("name", LOGGERS)
def test_it_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, MODULES[name], None)
    with pytest.raises(ArgumentError, match=rf"^--log {name} needs {TITLES[name]}: pip install 'attent\[{name}\]' \("):
        check_installed([name])


def test_every_number_is_written_for_tensorboard_under_its_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[object] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int) -> None:
            written.append((folder, purge_step))

        def add_scalar(self, *scalar: object) -> None:
            written.append(scalar)

        def flush(self) -> None:
            pass

        def close(self) -> None:
            written.append("closed")

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    write_records("tensorboard", tmp_path)
    assert written == [
        (str(tmp_path / "tensorboard"), 5),
        ("training/loss", 2.5, 5),
        ("training/seconds", 1.0, 5),
        ("training/seconds", 2.0, 6),
        ("validation/loss", 3.0, 6),
        "closed",
    ]


def test_weights_and_biases_gets_a_run_called_as_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []

    class Run:
        id = "k3x9"

        def log(self, scalars: dict[str, float], step: int) -> None:
            written.append((step, scalars))

        def finish(self) -> None:
            written.append("finished")

    module = types.ModuleType("wandb")
    module.init = lambda **options: written.append(options) or Run()
    monkeypatch.setitem(sys.modules, "wandb", module)
    (tmp_path / "tiny").mkdir()
    write_records("wandb", tmp_path / "tiny")
    assert written == [
        {"project": "attent", "name": "tiny"},
        (5, {"training/loss": 2.5, "training/seconds": 1.0}),
        (6, {"training/seconds": 2.0, "validation/loss": 3.0}),
        "finished",
    ]


def test_mlflow_gets_a_run_that_ends_even_if_training_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []
    module = types.ModuleType("mlflow")
    module.start_run = lambda run_name: (
        written.append(run_name) or types.SimpleNamespace(info=types.SimpleNamespace(run_id="ab12"))
    )
    module.log_metrics = lambda metrics, step: written.append((step, metrics))
    module.end_run = lambda: written.append("ended")
    monkeypatch.setitem(sys.modules, "mlflow", module)
    (tmp_path / "tiny").mkdir()
    with pytest.raises(KeyboardInterrupt), open_loggers(["mlflow"], tmp_path / "tiny") as write:
        write(RECORDS[1])
        raise KeyboardInterrupt
    assert written == ["tiny", (5, {"training/loss": 2.5, "training/seconds": 1.0}), "ended"]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_resumed_training_goes_on_with_its_own_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    started: list[dict[str, str]] = []

    def begin(**options: str) -> types.SimpleNamespace:
        started.append(options)
        vocabulary = options.get("id") or options.get("run_id") or f"run-{len(started)}"
        return types.SimpleNamespace(id=vocabulary, info=types.SimpleNamespace(run_id=vocabulary), finish=lambda: None)

    module = types.ModuleType(name)
    module.init = module.start_run = begin
    module.end_run = lambda: None
    monkeypatch.setitem(sys.modules, name, module)
    resumed = {
        "wandb": {"project": "attent", "name": "tiny", "id": "run-1", "resume": "allow"},
        "mlflow": {"run_id": "run-1"},
    }[name]

    def start(update: int) -> dict[str, str]:
        with open_loggers([name], tmp_path / "tiny", update):
            return started[-1]

    (tmp_path / "tiny").mkdir()
    fresh = start(0)
    assert "run-1" not in fresh.values()
    assert start(4) == start(8) == resumed
    # training that begins again begins another run, which is gone on with from then on
    assert start(0) == fresh
    assert "run-4" in start(4).values()
    (tmp_path / "tiny" / "loggers.json").write_text(f'{{"{name}": "../else where"}}', encoding="utf-8")
    assert start(4) == fresh


def test_runs_of_two_loggers_are_kept_beside_each_other(tmp_path: Path) -> None:
    write_id(tmp_path, "wandb", "k3x9")
    write_id(tmp_path, "mlflow", "ab12")
    assert [read_id(tmp_path, name) for name in ("wandb", "mlflow", "tensorboard")] == ["k3x9", "ab12", None]


def test_a_library_that_refuses_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: str) -> None:
        raise RuntimeError("no API key")

    module = types.ModuleType("wandb")
    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    with pytest.raises(ArgumentError, match=r"^--log wandb: Weights & Biases cannot start: no API key$"):
        write_records("wandb", tmp_path)


def test_settings_name_the_loggers() -> None:
    def loggers(**settings: object) -> tuple[str, ...]:
        return TrainingSettings.model_validate({"updates": 1, "batch_pairs": 1, **settings}).loggers

    assert loggers() == ()
    assert loggers(log="mlflow") == ("mlflow",)
    assert "log" not in TrainingSettings(updates=1, batch_pairs=1).table
    assert TrainingSettings(updates=1, batch_pairs=1, log="wandb").table["log"] == "wandb"


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="what TensorBoard reads needs TensorBoard")
    code = """
import sys
from attent.training.progress import open_loggers
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
for update, losses in ((0, (3.0, 2.0, 9.0)), (2, (1.0,))):
    with open_loggers(["tensorboard"], sys.argv[1], update) as write:
        for step, loss in enumerate(losses, update + 1):
            write({"update": step, "loss": loss})
events = EventAccumulator(sys.argv[1] + "/tensorboard").Reload()
print([(event.step, event.value) for event in events.Scalars("training/loss")])
"""
    # in a process of its own, for TensorBoard's imports warn
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["[(1, 3.0), (2, 2.0), (3, 1.0)]"], done.stderr
