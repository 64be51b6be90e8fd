"""Processes that divide a model among them learn what one alone would, and each holds only its part."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor

from attent.errors import RunError
from attent.runs.weights import tensors_of
from attent.training.checkpoint import latest_checkpoint, read_state
from attent.training.distributed import Sharded, process_group
from attent.training.loop import Training
from attent.training.optimizer import WeightAverage, optimizer_state
from attent.training.progress import SilentProgress

# With the usual epsilon Adam would make steps of rounding where a gradient is nothing else, such as that of the keys'
# bias.
EXACT = {"epsilon": 1e-4}
EVERY = EXACT | {"averaging": "ema", "clip": 0.1, "validate_every": 20}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("transformer", EVERY | {"batch_pairs": None, "batch_tokens": 9}),
        pytest.param("luong", EXACT | {"accumulate": 3, "averaging": "last", "last_every": 7}, marks=pytest.mark.slow),
        pytest.param("none", EXACT | {"batch_pairs": 1, "optimizer": "adam"}, marks=pytest.mark.slow),
    ],
)
def test_losses_scores_and_weights_are_those_of_one_process(
    small, run_processes, kind: str, values: dict[str, Any]
) -> None:
    """Also where a batch has fewer pairs than there are processes, and another number of tokens in each."""
    single, weights, scores, _ = small.go(values, kind)
    result = run_processes(2, small.go, values | {"sharded": True}, kind)
    (first, actual, judged, _), (second, _, target, message) = result
    assert list(first) == list(single) == list(range(1, small.settings().updates + 1))
    assert max(abs(first[update] - loss) for update, loss in single.items()) < 1e-5
    assert actual == pytest.approx(weights, abs=1e-4)
    assert judged == target
    assert judged["loss"] == pytest.approx(scores["loss"], abs=1e-5)
    assert (second, message) == ({}, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [((1, False), (2, True)), ((2, True), (2, True)), ((2, True), (2, False)), ((3, True), (1, True))],
)
def test_a_run_goes_on_divided_or_not(
    small, run_processes, tmp_path: Path, before: tuple[int, bool], after: tuple[int, bool]
) -> None:
    values = EVERY | {"save_every": 5}
    single, weights, scores, _ = small.go(values)

    def on(number: int, divided: bool, *arguments: Any) -> list[Any]:
        return run_processes(number, small.go, values | {"sharded": divided}, "transformer", 0.0, tmp_path, *arguments)

    ended = on(*before, ("killed", before[0] - 1, 28))
    assert ended[-1] is None
    assert all(isinstance(error, RunError) for error in ended[:-1])
    stood = read_state(latest_checkpoint(tmp_path))
    assert (stood.update, stood.processes, stood.sharded) == (25, before[0], before[1])
    losses, actual, judged, message = on(*after)[0]
    assert list(losses) == list(range(26, small.settings().updates + 1))
    assert max(abs(loss - single[update]) for update, loss in losses.items()) < 1e-5
    assert actual == pytest.approx(weights, abs=1e-4)
    assert judged["loss"] == pytest.approx(scores["loss"], abs=1e-5)
    assert ("warning" in message) == (before != after)
    held = after[1] and after[0] > 1
    assert ("divided weights instead of whole weights" in message) == (held and not before[1])
    assert ("whole weights instead of divided weights" in message) == (before[1] and not held)


@pytest.mark.slow
def test_a_signal_to_one_saves_what_all_hold(small, run_processes, tmp_path: Path) -> None:
    values = EVERY | {"sharded": True, "updates": 20}
    ended = run_processes(2, small.go, values, "transformer", 0.0, tmp_path, (signal.SIGTERM, 1, 13))
    assert all(isinstance(error, KeyboardInterrupt) for error in ended)
    assert read_state(latest_checkpoint(tmp_path)).update == 13
    whole, weights, *_ = small.go(values | {"sharded": False})
    losses, actual, *_ = small.go(values, "transformer", 0.0, tmp_path)
    assert losses == pytest.approx({update: loss for update, loss in whole.items() if update > 13}, abs=1e-5)
    assert actual == pytest.approx(weights, abs=1e-4)


@pytest.mark.slow
def test_dropout_and_precision_are_the_same_again(small, run_processes, tmp_path: Path) -> None:
    values = {"save_every": 5, "updates": 20, "averaging": "last", "last_every": 4}
    values |= {"sharded": True, "precision": "bfloat16"}
    whole = run_processes(2, small.go, values, "transformer", 0.3)[0]
    run_processes(2, small.go, values, "transformer", 0.3, tmp_path, ("killed", 1, 13))
    parts = run_processes(2, small.go, values, "transformer", 0.3, tmp_path)[0]
    assert parts[0] == {update: loss for update, loss in whole[0].items() if update > 10}
    assert parts[1] == whole[1]


def test_one_alone_holds_everything(small) -> None:
    *learnt, message = small.go({"sharded": True, "updates": 3})
    assert learnt == list(small.go({"updates": 3})[:3])
    assert message.splitlines()[0] == "sharded has no effect with a single process, which holds all weights"


def held(small: Any, kind: str) -> tuple[int, list[int], list[int]]:
    """How many numbers the model has, and how many are held here.

    Of weights, moments, means and gradients, and of the model.
    """
    model = small.model(kind, 0.0)
    total = sum(weight.numel() for weight in model.parameters())
    settings = small.settings(sharded=True, averaging="ema", clip=None)
    with process_group() as processes:
        training = Training(model, small.data, settings, dict, lambda record: None, SilentProgress(), None, processes)
        training.train_step()
        training.batch_loss(next(training.batches), 0.1, "float32").backward()
        held = {name: [] for name in ("weights", "exp_avg", "exp_avg_sq", "mean", "gradients")}
        held["weights"] = training.parameters
        held["gradients"] = [weight.grad for weight in training.parameters]
        held["mean"] = training.average.ema
        for name, moment in optimizer_state(training.optimizer, dict(training.module.named_parameters())).items():
            if not name.endswith("/step"):
                held[name.rpartition("/")[2]].append(moment)
        assert all(isinstance(tensor, DTensor) for tensors in held.values() for tensor in tensors)
        numbers = [sum(tensor.to_local().numel() for tensor in tensors) for tensors in held.values()]
        empty = [weight.untyped_storage().nbytes() // 4 for weight in tensors_of(model).values()]
        with training.processes.full_parameters(model):
            full = [weight.untyped_storage().nbytes() // 4 for weight in tensors_of(model).values()]
        assert all(weight.untyped_storage().nbytes() == 4 for weight in tensors_of(model).values())
    return total, numbers, [len(empty), sum(empty), sum(full)]


@pytest.mark.parametrize("kind", ["transformer", pytest.param("luong", marks=pytest.mark.slow)])
def test_each_holds_its_part_alone(small, run_processes, kind: str) -> None:
    (total, first, (tensors, empty, full)), (_, second, (_, others, absent)) = run_processes(2, held, small, kind)
    assert [left + right_item for left, right_item in zip(first, second, strict=True)] == [total] * 5
    assert max(first + second) < 0.52 * total
    assert empty == others == absent == tensors
    # what is gathered may have room for parts of equal size
    assert total <= full < 1.05 * total


def parts(small: Any) -> tuple[list[list[int]], bool]:
    with process_group() as processes:
        divided = Sharded(processes.rank, processes.world_size)
        trained = divided.prepare_model(small.model("transformer", 0.0))
        positions = tensors_of(trained)
        average = WeightAverage(list(trained.parameters()), small.settings(averaging="ema"))
        state = divided.gather_tensors(average.state())
        back = divided.broadcast_tensors(state, average.parameter_of)
        same = [torch.equal(back[name].to_local(), tensor.to_local()) for name, tensor in average.state().items()]
        return [list(tensor.to_local().shape) for tensor in positions.values()], all(same)


def test_what_is_taken_apart_is_whole_again(small, run_processes) -> None:
    """Three processes: nearly no weight has rows that three divides, and one of two has less rows than processes."""
    first, second, third = run_processes(3, parts, small)
    assert first[1] and second[1] and third[1]
    rows = [sum(shape[0] for shape in shapes) for shapes in zip(first[0], second[0], third[0], strict=True)]
    assert rows == [len(weight) for weight in tensors_of(small.model("transformer", 0.0)).values()]
