"""Processes that train together learn what one alone would."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from attent.errors import DeviceError, RunError
from attent.models.language_model import LanguageModel
from attent.models.settings import DecoderSettings
from attent.tasks.recipe import prepare_examples
from attent.tasks.settings import parse
from attent.tasks.task import Vocabularies
from attent.tasks.text_generation.examples import LanguageModelExamples, RunningText, TextLines
from attent.tasks.text_generation.task import language_model_cross_entropy
from attent.tasks.translation import task as translation
from attent.text.batches import BatchSize, Bitext, Sequences
from attent.text.corpus import pair_corpus
from attent.text.text import Pair
from attent.text.tokenizer import CharTokenizer
from attent.training.checkpoint import latest_checkpoint, read_state
from attent.training.distributed import SINGLE_PROCESS, is_main_process, process_group
from attent.training.loop import train
from attent.training.progress import SilentProgress
from attent.training.settings import TrainingSettings

TOKENIZER = CharTokenizer("ab")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (
            "transformer",
            {
                "batch_pairs": None,
                "batch_tokens": 9,
                "clip": 0.1,
                "averaging": "ema",
                "validate_every": 20,
                "optimizer": "muon",
            },
        ),
        pytest.param("bahdanau", {"accumulate": 3, "clip": None, "schedule": "noam"}, marks=pytest.mark.slow),
        pytest.param("none", {"batch_pairs": 1, "optimizer": "adam"}, marks=pytest.mark.slow),
    ],
)
def test_losses_are_those_of_one_process(small, run_processes, kind: str, values: dict[str, Any]) -> None:
    """Also where a batch has fewer pairs than there are processes, and another number of tokens in each."""
    single, _, scores, _ = small.go(values, kind)
    (first, _, judged, _), (second, _, target, message) = run_processes(2, small.go, values, kind)
    assert list(first) == list(single) == list(range(1, small.settings().updates + 1))
    assert max(abs(first[update] - loss) for update, loss in single.items()) < 1e-5
    assert judged == target
    assert judged["loss"] == pytest.approx(scores["loss"], abs=1e-5)
    assert (second, message) == ({}, "")


LETTERS = Sequences([TOKENIZER.encode("ab" * (number % 4) + "b" * (number % 3 + 1)) for number in range(11)])


def language_model(data: LanguageModelExamples, values: dict[str, Any]) -> tuple[list[float], list[float]]:
    """The losses of a language model's updates, as the first process logs them, and its weights."""
    settings = {
        "updates": 20,
        "batch_pairs": 3,
        "warmup": 2,
        "precision": "float32",
        "threads": 1,
        "learning_rate": 0.01,
    }
    sizes = {"layers": 1, "width": 8, "feed_forward": 5, "heads": 2, "dropout": 0.0}
    torch.manual_seed(5)
    model, losses = LanguageModel(DecoderSettings.model_validate(sizes), TOKENIZER.size, TOKENIZER.size), list[float]()
    with process_group() as processes, patch("attent.training.progress.RECORD_INTERVAL", 0.0):
        train(
            model,
            data,
            TrainingSettings.model_validate(settings | values),
            loss=language_model_cross_entropy,
            log=lambda record: losses.extend([record["loss"]] if "loss" in record else []),
            progress=SilentProgress(),
            processes=processes,
        )
    return losses, [weight for parameter in model.parameters() for weight in parameter.flatten().tolist()]


@pytest.mark.parametrize(
    ("data", "values"),
    [
        pytest.param(TextLines(LETTERS), {}, marks=pytest.mark.slow),
        (RunningText(LETTERS, 7), {"accumulate": 2, "batch_pairs": 1}),
    ],
)
def test_a_language_model_learns_what_it_does_alone(
    run_processes, data: LanguageModelExamples, values: dict[str, Any]
) -> None:
    """Also of lines of other lengths in each process, and where one has no window of a batch."""
    single, _ = language_model(data, values)
    (first, weights), (second, others) = run_processes(2, language_model, data, values)
    assert first == pytest.approx(single, abs=1e-5)
    assert len(single) == 20
    assert single[-1] < single[0]
    assert second == []
    assert weights == others


@pytest.mark.parametrize(
    ("before", "after", "end"),
    [
        (2, 1, "killed"),
        pytest.param(2, 3, signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(1, 2, signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_run_goes_on_on_another_number_of_processes(
    small, run_processes, tmp_path: Path, before: int, after: int, end: Any
) -> None:
    values = {"save_every": 5, "averaging": "ema"}
    single, *_ = small.go(values)

    def on(number: int, *arguments: Any) -> list[Any]:
        return run_processes(number, small.go, values, "transformer", 0.0, tmp_path, *arguments)

    ended = on(before, (end, before - 1, 23))
    if end == "killed":
        assert ended[before - 1] is None
        assert all(isinstance(error, RunError) for error in ended[: before - 1])
    else:
        assert all(isinstance(error, KeyboardInterrupt) for error in ended)
    stood = read_state(latest_checkpoint(tmp_path))
    assert (stood.update, stood.processes) == (20 if end == "killed" else 23, before)
    losses, *_, message = on(after)[0]
    assert list(losses) == list(range(stood.update + 1, small.settings().updates + 1))
    assert max(abs(loss - single[update]) for update, loss in losses.items()) < 1e-5
    plural = "es" if after > 1 else ""
    assert f"warning: with {after} process{plural} instead of {before}" in message


@pytest.mark.slow
def test_dropout_differs_between_processes_and_is_the_same_again(small, run_processes, tmp_path: Path) -> None:
    values = {"save_every": 5, "updates": 20, "averaging": "last", "last_every": 4}
    whole, repeated = (run_processes(2, small.go, values, "transformer", 0.3)[0] for _ in range(2))
    assert whole[:2] == repeated[:2]
    run_processes(2, small.go, values, "transformer", 0.3, tmp_path, ("killed", 1, 13))
    parts = run_processes(2, small.go, values, "transformer", 0.3, tmp_path)[0]
    assert parts[0] == {update: loss for update, loss in whole[0].items() if update > 10}
    assert parts[1] == whole[1]
    first, second = run_processes(2, drawn)
    assert first != second


def drawn() -> list[float]:
    with process_group() as processes:
        processes.seed_rank(1, 7)
        numbers = torch.rand(3).tolist()
        processes.seed_rank(1, 7)
        assert processes.is_rank0 or torch.rand(3).tolist() == numbers
        return numbers


def ended(go: Any, rank: int) -> tuple[Exception, list[str]]:
    """The error that ends a training, and the threads of gloo while its traceback, and all that it holds, is there."""
    try:
        go({}, "transformer", 0.0, None, ("broken", rank, 9))
    except Exception as error:
        names = [thread.read_text().strip() for thread in Path("/proc/self/task").glob("*/comm")]
        return error, [name for name in names if "gloo" in name]
    raise AssertionError


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_in_one_ends_all_and_no_thread_of_gloo_outlives_it(small, run_processes, rank: int) -> None:
    result = run_processes(2, ended, small.go, rank)
    assert isinstance(result[rank][0], small.broken)
    assert isinstance(result[1 - rank][0], RunError)
    assert "another process of this training has exited" in str(result[1 - rank][0])
    assert [threads for _, threads in result] == [[], []]


def said_by_first() -> Any:
    with process_group() as processes:
        rank = processes.rank
        received = processes.from_rank0(lambda: {"is": [rank, 0.1, "é"]})
        stopped = processes.sync_stop(rank == 1, 7.25 + rank), processes.sync_stop(False, 0.5)
        sums = processes.all_reduce(torch.tensor([1.0, float(rank)])).tolist()
        processes.barrier()
        return received, stopped, sums, is_main_process(), torch.get_num_threads()


def test_all_hear_the_same(run_processes) -> None:
    first, second = run_processes(2, said_by_first)
    assert first[:3] == second[:3] == ({"is": [0, 0.1, "é"]}, ((True, 7.25), (False, 0.5)), [2.0, 1.0])
    assert (first[3], second[3]) == (True, False)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    assert first[4] == second[4] == max(1, cores // 2)


LINES = [(f"{number:03}", f"{7 * number % 100:02}") for number in range(100)]
DIGITS = CharTokenizer("0123456789")


def read_in_parts(file: Path, positions: list[int]) -> tuple[list[str], int]:
    """The pairs that one process sees in an epoch, and how often it read the corpus.

    Its place on its machine is given by rank.
    """
    os.environ["LOCAL_RANK"] = str(positions[int(os.environ["RANK"])])
    text = f'[text]\ntrain = "{file}"\nvalid = "{file.parent / "valid.tsv"}"\n'
    settings = parse(f"{text}[training]\nupdates = 1\nbatch_pairs = 7\n", "")
    with process_group() as processes, patch.object(translation, "pair_corpus", wraps=pair_corpus) as reading:
        bitext, corpus = prepare_examples(processes, settings, Vocabularies({}, (DIGITS, DIGITS)))
        batches, lines = bitext.stream(BatchSize(7), 1), list[str]()
        for _ in range(len(bitext.epoch_plan(BatchSize(7), 1, 0))):
            batch, _ = processes.next_part(batches)
            pairs = zip(batch.source, batch.source_lengths, batch.target_out, strict=True) if batch.tokens else ()
            lines += [
                f"{DIGITS.decode(source[:length].tolist())} {DIGITS.decode(target.tolist())}"
                for source, length, target in pairs
            ]
        processes.barrier()
        assert (corpus is not None) == bool(reading.call_count)
        return lines, reading.call_count


@pytest.mark.parametrize("positions", [[0], [0, 1, 0], pytest.param([0, 1, 2], marks=pytest.mark.slow)])
def test_every_pair_is_learnt_once_and_read_once_a_machine(run_processes, tmp_path: Path, positions: list[int]) -> None:
    """The last batch has two pairs, of which three processes get none, or one."""
    (tmp_path / "train.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in LINES), encoding="utf-8")
    (tmp_path / "valid.tsv").write_text("7\t7\n", encoding="utf-8")
    result = run_processes(len(positions), read_in_parts, tmp_path / "train.tsv", positions)
    assert sorted(line for observed, _ in result for line in observed) == [" ".join(line) for line in LINES]
    assert [calls for _, calls in result] == [int(position == 0) for position in positions]


def other_data(small: Any, bitext: Bitext) -> None:
    with process_group() as processes:
        data = small.data if processes.is_rank0 else bitext
        train(small.model("transformer", 0.0), data, small.settings(), processes=processes)


def test_other_data_is_noticed(small, run_processes) -> None:
    _, second = run_processes(2, other_data, small, Bitext([Pair("a", "b")] * len(small.data), TOKENIZER, TOKENIZER))
    assert isinstance(second, RunError)
    assert str(second) == "the training pairs of process 1 differ from those of process 0"
    _, second = run_processes(2, other_data, small, Bitext([Pair("a", "b")] * 10, TOKENIZER, TOKENIZER))
    assert isinstance(second, RunError)
    assert str(second) == "process 1 has 10 training pairs, but process 0 has 11"


def in_time(small: Any) -> int:
    with process_group() as processes:
        options = small.settings(updates=None, minutes=0.3 / 60, patience=10**9, validate_every=10**9)
        return train(
            small.model("transformer", 0.0), small.data, options, progress=SilentProgress(), processes=processes
        ).updates


def test_all_end_at_the_same_update_when_time_is_up(small, run_processes) -> None:
    first, second = run_processes(2, in_time, small)
    assert first == second > 0


def test_one_process_takes_the_gpu_that_is_named_and_asks_nothing_of_anyone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    threads = torch.get_num_threads()
    with process_group() as processes:
        assert processes is SINGLE_PROCESS
        assert not torch.distributed.is_initialized()
    assert torch.get_num_threads() == threads
    assert is_main_process()
    used: list[Any] = []
    monkeypatch.setattr(torch.cuda, "set_device", used.append)
    with process_group(torch.device("cuda")) as single, process_group(torch.device("cuda", 1)) as repeated:
        assert single is repeated is SINGLE_PROCESS
    assert used == [torch.device("cuda", 1)]


def start(monkeypatch: pytest.MonkeyPatch, gpus: int, **environment: int) -> None:
    """As a launcher does it, on a machine with so many GPUs."""
    for name, value in environment.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)


def test_each_process_takes_the_gpu_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number on its machine; they speak through NCCL there, and through gloo of what lies on the CPU."""
    start(monkeypatch, 2, RANK=3, WORLD_SIZE=4, LOCAL_RANK=1, LOCAL_WORLD_SIZE=2)
    used: list[Any] = []
    monkeypatch.setattr(torch.cuda, "set_device", used.append)

    class JoinedError(Exception):
        pass

    def init(backend: str, **_: Any) -> None:
        used.append(backend)
        raise JoinedError

    monkeypatch.setattr(torch.distributed, "init_process_group", init)
    with pytest.raises(JoinedError), process_group(torch.device("cuda")):
        pass
    assert used == [1, "cpu:gloo,cuda:nccl"]


@pytest.mark.parametrize(
    ("gpus", "device", "message"),
    [
        (1, "cuda", "2 processes on this machine need a GPU each, but it has 1: start 1, or train on device 'cpu'"),
        (2, "cuda:1", "several processes need a GPU each: set device 'cuda', not 'cuda:1'"),
    ],
)
def test_a_gpu_is_not_for_several_processes(
    monkeypatch: pytest.MonkeyPatch, gpus: int, device: str, message: str
) -> None:
    start(monkeypatch, gpus, RANK=0, WORLD_SIZE=2, LOCAL_RANK=0, LOCAL_WORLD_SIZE=2)
    with pytest.raises(DeviceError, match=f"^{message}$"), process_group(torch.device(device)):
        pass
