"""Training on several processes: operations that synchronize them.

Every process holds the whole model, iterates over the batches in the same order, and trains on its own rows of each
batch. Gradients are summed over processes, so that the loss is the mean over all tokens of the
batch, regardless of the number of processes. Process 0 makes decisions, validates, saves and prints; the others wait
for it.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from attent.devices import core_count
from attent.errors import DeviceError, RunError, refuse
from attent.models.model import Model
from attent.text.batches import BatchStream, Examples
from attent.training.autotune import Precision
from attent.training.loss import LossFunction, translation_cross_entropy

T = TypeVar("T")
# A loss function bound to its model.
BatchLoss = Callable[[Any, float, Precision], Tensor]

# The longest wait for another process: reading a corpus or a validation may take hours.
TIMEOUT = timedelta(days=1)
# Environment variables that torchrun sets.
RANK, WORLD, LOCAL_RANK, LOCAL_WORLD, ADDRESS = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"
CPU = torch.device("cpu")
# PyTorch passes gloo's errors on as RuntimeErrors whose text contains this.
GLOO = "gloo"


class Processes:
    """The processes of a training run.

    This base class represents the single process of an ordinary run, for which the operations are trivial.

    Attributes:
        rank: the number of this process, from 0.
        world_size: the number of processes.
        is_local_rank0: whether this is the first process on its machine, which prepares shared files for the others.
    """

    rank, world_size, is_local_rank0 = 0, 1, True

    @property
    def is_rank0(self) -> bool:
        """True in the process that makes decisions, validates, saves and prints."""
        return self.rank == 0

    def next_part(self, batches: BatchStream[Any]) -> tuple[Any, int]:
        """Return this process's rows of the next batch, and the number of predictions in the whole batch.

        Predictions are, for example, target tokens.
        """
        batch = next(batches)
        return batch, batch.tokens

    def batch_loss(self, model: Model, loss: LossFunction = translation_cross_entropy) -> BatchLoss:
        """Return a function that computes the loss of a batch; its backward pass sums gradients over all processes."""
        return partial(loss, model)

    def no_sync(self, loss: BatchLoss) -> AbstractContextManager[None]:
        """Return a context that skips summing over processes, for all batches of an update but the last."""
        return nullcontext()

    def all_reduce(self, value: Tensor) -> Tensor:
        """Return the sum over all processes."""
        return value

    def sync_stop(self, is_stop_requested: bool, seconds: float) -> tuple[bool, float]:
        """Return whether any process was asked to stop, and the elapsed seconds of process 0."""
        return is_stop_requested, seconds

    def from_rank0(self, work: Callable[[], T]) -> T:
        """Run a function in process 0 and return its result, which must be JSON, in all processes."""
        return work()

    def from_local_rank0(self, work: Callable[[], T]) -> T:
        """Run a function in the first process of each machine and return its result in all processes there.

        The result must be JSON.
        """
        return work()

    def broadcast_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of process 0, by name; only those passed by process 0 are used."""
        return dict(tensors)

    def check_same_data(self, data: Examples[Any]) -> None:
        """Check that all processes have the same examples as process 0."""

    def seed_rank(self, seed: int, update: int) -> None:
        """Seed each process differently for an update; repeating the update yields the same random numbers."""

    def barrier(self) -> None:
        """Wait for all processes."""


class ProcessGroup(Processes):
    """Several processes, connected by `process_group`.

    Args:
        rank: the number of this process, from 0.
        world_size: the number of processes.
        local_rank0: the rank of the first process on this machine; by default the rank of this process.
    """

    def __init__(self, rank: int, world_size: int, local_rank0: int | None = None) -> None:
        self.rank, self.world_size = rank, world_size
        self._local_rank0 = rank if local_rank0 is None else local_rank0
        self._losses: list[DistributedDataParallel] = []

    @property
    def is_local_rank0(self) -> bool:
        return self.rank == self._local_rank0

    def next_part(self, batches: BatchStream[Any]) -> tuple[Any, int]:
        return batches.next_shard(self.rank, self.world_size)

    def batch_loss(self, model: Model, loss: LossFunction = translation_cross_entropy) -> BatchLoss:
        parallel = DistributedDataParallel(LossModule(model, loss), gradient_as_bucket_view=True)
        # A process's loss is its share of the batch's mean, so gradients are summed; PyTorch would average them.
        parallel.register_comm_hook(None, _sum_hook)
        self._losses.append(parallel)
        return parallel

    def no_sync(self, loss: BatchLoss) -> AbstractContextManager[None]:
        assert isinstance(loss, DistributedDataParallel)
        return loss.no_sync()

    def all_reduce(self, value: Tensor) -> Tensor:
        dist.all_reduce(value)
        return value

    def sync_stop(self, is_stop_requested: bool, seconds: float) -> tuple[bool, float]:
        values = torch.tensor([float(is_stop_requested), seconds if self.is_rank0 else 0.0], dtype=torch.float64)
        requests, seconds = self.all_reduce(values).tolist()
        return requests > 0, seconds

    def from_rank0(self, work: Callable[[], T]) -> T:
        return self._from_rank(0, work)

    def from_local_rank0(self, work: Callable[[], T]) -> T:
        return self._from_rank(self._local_rank0, work)

    def _from_rank(self, rank: int, work: Callable[[], T]) -> T:
        text = json.dumps(work()).encode() if self.rank == rank else b""
        length = torch.tensor(len(text))
        dist.all_reduce(length, dist.ReduceOp.MAX)
        texts = [torch.empty(int(length), dtype=torch.uint8) for _ in range(self.world_size)]
        # JSON may end in spaces.
        dist.all_gather(texts, torch.tensor(list(text.ljust(len(texts[0]))), dtype=torch.uint8))
        return json.loads(bytes(texts[rank].tolist()))

    def broadcast_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        specs: dict[str, tuple[list[int], str, str]] = self.from_rank0(
            lambda: {
                name: (list(t.shape), str(t.dtype).removeprefix("torch."), t.device.type) for name, t in tensors.items()
            }
        )
        result: dict[str, Tensor] = {}
        for name, (shape, dtype, device) in specs.items():
            tensor = (
                tensors[name].detach().contiguous()
                if self.is_rank0
                else torch.empty(shape, dtype=getattr(torch, dtype), device=device)
            )
            dist.broadcast(tensor, 0)
            result[name] = tensor
        return result

    def check_same_data(self, data: Examples[Any]) -> None:
        rows, *digest = data.digest()
        rows0, digest0 = self.from_rank0(lambda: (rows, digest))
        refuse(
            (
                rows != rows0,
                f"process {self.rank} has {rows:,} training {data.row_name}s, but process 0 has {rows0:,}",
            ),
            (digest != digest0, f"the training {data.row_name}s of process {self.rank} differ from those of process 0"),
            kind=RunError,
        )

    def seed_rank(self, seed: int, update: int) -> None:
        # Checkpoints store the generator state of process 0; seeding makes the other processes reproducible.
        if not self.is_rank0:
            torch.manual_seed(
                int(np.random.SeedSequence((seed, self.rank, update)).generate_state(1, np.uint64)[0] >> 1)
            )

    def barrier(self) -> None:
        self.all_reduce(torch.zeros(1))

    def destroy(self) -> None:
        """Close the connection to the other processes."""
        # An error's traceback references losses, which reference PyTorch's group. Freeing the last reference to the
        # group joins its threads, and a loss's reducer does so while holding Python's lock: a deadlock if such a thread
        # is about to free a Python tensor.
        group = dist.group.WORLD
        while self._losses:
            loss = self._losses.pop()
            del loss.reducer, loss.logger, loss.process_group
        dist.destroy_process_group()
        del group


@contextmanager
def process_group(device: torch.device = CPU) -> Iterator[Processes]:
    """Connect the processes that a launcher such as torchrun has started, within the block.

    Without a launcher this yields the single process. Otherwise each process gets the GPU of its local rank, or on CPUs
    its share of the machine's cores, unless OMP_NUM_THREADS is more than one. A process that fails must exit: the
    others then notice and exit too.

    Args:
        device: the type of device; processes communicate through gloo on CPUs and through NCCL on GPUs.

    Raises:
        DeviceError: there are fewer GPUs than processes, or the device names a single GPU for all processes.
        RunError: another process has exited.
    """
    world_size, on_gpu = _world_size(), device.type == "cuda"
    if world_size == 1:
        if on_gpu and device.index is not None:
            # Checkpoints store the random state of the current GPU.
            torch.cuda.set_device(device)
        yield SINGLE_PROCESS
        return
    if on_gpu:
        torch.cuda.set_device(_local_gpu_index(device))
    # torchrun sets 1 if the variable is unset.
    elif os.environ.get("OMP_NUM_THREADS", "1") == "1":
        torch.set_num_threads(max(1, core_count() // int(os.environ.get(LOCAL_WORLD, world_size))))
    group = None
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=TIMEOUT)
        # A launcher that sets no local rank may have started each process on a different machine.
        group = ProcessGroup(dist.get_rank(), world_size, dist.get_rank() - int(os.environ.get(LOCAL_RANK, "0")))
        yield group
        group.barrier()
    except RuntimeError as error:
        if not is_peer_loss(error):
            raise
        raise RunError(
            "another process of this training has exited, so this one stops too; see the messages of that process"
        ) from error
    finally:
        if group is not None:
            group.destroy()


def is_peer_loss(error: Exception) -> bool:
    """Return whether an error means that another process has exited."""
    return isinstance(error, dist.DistError) or GLOO in str(error)


def is_main_process() -> bool:
    """Return whether this is the process that prints; also works before and after `process_group`."""
    return _world_size() == 1 or os.environ[RANK] == "0"


def is_local_main_process() -> bool:
    """Return whether this is the process that prints messages about the machine it runs on."""
    return _world_size() == 1 or os.environ.get(LOCAL_RANK, "0") == "0"


class LossModule(nn.Module):
    """A model and its loss in one module whose forward returns the loss, as data parallelism in PyTorch requires."""

    def __init__(self, model: Model, loss: LossFunction) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Any, label_smoothing: float, precision: Precision) -> Tensor:
        return self.loss(self.model, batch, label_smoothing, precision)


# Not annotated: PyTorch checks a hook's annotations and does not understand them as strings.
def _sum_hook(state, bucket):
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda sums: sums.value()[0])


def _world_size() -> int:
    """Return the number of processes that a launcher has started."""
    return int(os.environ.get(WORLD, 1)) if os.environ.get(ADDRESS) and os.environ.get(RANK) else 1


def _local_gpu_index(device: torch.device) -> int:
    """Return the index of this process's GPU."""
    rank, gpus = int(os.environ.get(LOCAL_RANK, os.environ[RANK])), torch.cuda.device_count()
    processes = int(os.environ.get(LOCAL_WORLD, rank + 1))
    refuse(
        (device.index is not None, f"several processes need a GPU each: set device 'cuda', not {str(device)!r}"),
        (
            processes > gpus,
            f"{processes} processes on this machine need a GPU each, but it has {gpus}: start {gpus}, or train on "
            "device 'cpu'",
        ),
        kind=DeviceError,
    )
    return rank


SINGLE_PROCESS = Processes()
