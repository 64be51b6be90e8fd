"""Several processes as a launcher starts them, and a training of about a second."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
import torch

from attent.models.rnn import RNN
from attent.models.settings import RnnSettings, TransformerSettings
from attent.models.transformer import Transformer
from attent.text.batches import BatchSize, Bitext
from attent.text.text import Pair
from attent.text.tokenizer import CharTokenizer
from attent.training.checkpoint import Checkpoints
from attent.training.distributed import process_group
from attent.training.loop import TrainingResult, train
from attent.training.loss import mean_loss
from attent.training.progress import Progress
from attent.training.settings import TrainingSettings

Together = Callable[..., list[Any]]
# Maximum seconds for all processes.
PATIENCE = 60


def _run_rank(
    rank: int, number: int, port: int, work: Callable[..., Any], arguments: tuple[Any, ...], answer: Any
) -> None:
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": number, "LOCAL_WORLD_SIZE": number}
    os.environ.update({name: str(value) for name, value in (variables | {"MASTER_PORT": port}).items()})
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ.pop("OMP_NUM_THREADS", None)
    torch.set_num_threads(1)
    try:
        answer.send(work(*arguments))
    except (Exception, KeyboardInterrupt) as error:
        answer.send(error)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="session")
def run_processes() -> Together:
    """A function that calls another in several processes, and returns each one's result or error.

    None for a killed process.
    """
    kind = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(kind)
    if kind == "forkserver":
        # imported once for all processes
        context.set_forkserver_preload(["torch", "torch.distributed", "torch._dynamo", "attent.tasks.recipe"])

    def call(number: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        port, answers, processes = free_port(), [], []
        for rank in range(number):
            answer, sender = context.Pipe(duplex=False)
            process = context.Process(target=_run_rank, args=(rank, number, port, work, arguments, sender))
            process.start()
            # otherwise the end of the process would not be noticed
            sender.close()
            answers.append(answer)
            processes.append(process)
        try:
            return [_received(answer) for answer in answers]
        finally:
            for process in processes:
                process.join(5)
                process.kill()

    return call


def _received(answer: Any) -> Any:
    if not answer.poll(PATIENCE):
        raise TimeoutError("a process neither answers nor ends")
    try:
        return answer.recv()
    except EOFError:
        return None


TOKENIZER = CharTokenizer("abcde")
PAIRS = [
    Pair(text, text[::-1])
    for text in ["a", "bc", "deb", "cead", "ba", "e", "dd", "abcdeabc", "ecb", "ddca", "bbbbbbbbbbb"]
]
DATA = Bitext(PAIRS, TOKENIZER, TOKENIZER, length_multiple=1)


class BrokenError(Exception):
    """An error in one process."""


def model(kind: str, dropout: float) -> Any:
    torch.manual_seed(5)
    if kind == "transformer":
        sizes = {"encoder_layers": 1, "decoder_layers": 1, "width": 8, "feed_forward": 5, "heads": 2}
        settings = TransformerSettings.model_validate(sizes | {"dropout": dropout})
        return Transformer(settings, TOKENIZER.size, TOKENIZER.size)
    return RNN(RnnSettings(width=8, embedding_width=6, attention=kind), TOKENIZER.size, TOKENIZER.size)


def settings(**values: object) -> TrainingSettings:
    defaults = {"updates": 30, "batch_pairs": 3, "warmup": 2, "learning_rate": 1e-2}
    return TrainingSettings.model_validate(defaults | {"precision": "float32", "threads": 1} | values)


def go(
    values: dict[str, Any], kind: str = "transformer", dropout: float = 0.0, folder: Path | None = None, end: Any = None
) -> Any:
    """Train on the processes of a launcher; return the losses by update, the weights, the last scores and the output.

    Args:
        values: settings of training.
        kind: "transformer", or the attention of a recurrent model.
        dropout: 0 to 1.
        folder: of the checkpoints.
        end: how a process is to end early, the rank of that process, and the batch before which it ends.
    """
    training_settings, network, stream, losses = settings(**values), model(kind, dropout), io.StringIO(), {}
    with process_group() as processes, patch("attent.training.progress.RECORD_INTERVAL", 0.0):
        # other processes start from different weights, and get those of process 0
        if not processes.is_rank0:
            torch.nn.init.zeros_(network.to_logits.weight)

        class Counted(Bitext):
            def stream(self, *arguments: Any, **named: Any) -> Any:
                batches, counts = super().stream(*arguments, **named), [0]
                plain = batches.next_rows

                def next_rows() -> np.ndarray:
                    counts[0] += 1
                    if end and end[1] == processes.rank and counts[0] == end[2]:
                        if end[0] == "killed":
                            os._exit(9)
                        if end[0] == "broken":
                            raise BrokenError
                        signal.raise_signal(end[0])
                    return plain()

                batches.next_rows = next_rows
                return batches

        data = Counted(PAIRS, TOKENIZER, TOKENIZER, length_multiple=1)
        checkpoints = Checkpoints(folder, training_settings) if folder else None
        trained = train(
            network,
            data,
            training_settings,
            validate=lambda: {"loss": mean_loss(network, DATA, BatchSize(3))},
            log=lambda record: losses.update({record["update"]: record["loss"]} if "loss" in record else {}),
            progress=Progress(stream),
            checkpoints=checkpoints,
            processes=processes,
        )
    assert isinstance(trained, TrainingResult)
    weights = torch.cat([weight.detach().flatten() for weight in network.parameters()]).tolist()
    return losses, weights, trained.validation, stream.getvalue()


class Small(NamedTuple):
    """The functions of a training of about a second, which can be sent to other processes."""

    go: Callable[..., Any]
    model: Callable[[str, float], Any]
    settings: Callable[..., TrainingSettings]
    data: Bitext
    broken: type[Exception]


@pytest.fixture(scope="session")
def small() -> Small:
    return Small(go, model, settings, DATA, BrokenError)
