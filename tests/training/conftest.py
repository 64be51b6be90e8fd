"""Several processes on this machine, as a launcher starts them."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
import torch

Together = Callable[..., list[Any]]
# Seconds that all of them together may take.
PATIENCE = 60


def _one(rank: int, number: int, port: int, work: Callable[..., Any], arguments: tuple[Any, ...], answer: Any) -> None:
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": number, "LOCAL_WORLD_SIZE": number, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in places.items()} | {"MASTER_ADDR": "127.0.0.1"})
    os.environ.pop("OMP_NUM_THREADS", None)
    torch.set_num_threads(1)
    try:
        answer.send(work(*arguments))
    except (Exception, KeyboardInterrupt) as error:
        answer.send(error)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="session")
def together() -> Together:
    """Calls a function in each of several processes: what it returned or raised in each, None where it was killed."""
    kind = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(kind)
    if kind == "forkserver":
        # imported once for all
        context.set_forkserver_preload(["torch", "torch.distributed", "torch._dynamo", "attent.config.recipe"])

    def call(number: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
        port, answers, processes = free_port(), [], []
        for rank in range(number):
            answer, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_one, args=(rank, number, port, work, arguments, theirs))
            process.start()
            # or its end would not be noticed
            theirs.close()
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
