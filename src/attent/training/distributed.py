"""Training on several processes: what one knows of the others, and the calls by which they keep in step.

Every process holds the whole model (or its part of it, `attent.training.sharding`) and walks the same order of batches; of
each batch it learns its own rows. The gradients of all are added up on the way back, so that the loss is the mean over all
the tokens of the batch, however many processes share it. The first one decides, judges, saves and speaks; the others wait
for it.
"""

from __future__ import annotations

import io
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

from attent.data.batches import BatchStream, Examples
from attent.errors import DeviceError, RunError
from attent.models.model import Model
from attent.training.autotune import Precision
from attent.training.loss import LossFunction
from attent.training.loss import translation_loss as of_translation
from attent.training.progress import Progress

T = TypeVar("T")
# A loss function with its model given.
BatchLoss = Callable[[Any, float, Precision], tuple[Tensor, int]]

# How long one waits for another: as long as reading a corpus or a validation may take.
TIMEOUT = timedelta(days=1)
# What a launcher says, as torchrun does.
RANK, WORLD, LOCAL_RANK, LOCAL_WORLD, ADDRESS = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"
CPU = torch.device("cpu")
# What gloo's errors name, which PyTorch passes on as they are.
GLOO = "gloo"


class Processes:
    """The processes that train together: here one alone, for which nothing is to be agreed on.

    Attributes:
        rank: which of them this one is, from 0.
        number: how many they are.
        sharded: whether each holds a part of the weights, rather than all of them.
        is_local_rank0: whether this is the one that prepares what all on its machine use.
    """

    rank, world_size, sharded, is_local_rank0 = 0, 1, False, True

    @property
    def is_rank0(self) -> bool:
        """Whether this is the one that decides, judges, saves and speaks."""
        return self.rank == 0

    def next_part(self, batches: BatchStream[Any]) -> tuple[Any, int]:
        """What of the next batch is to be learnt here, and how many answers the whole batch has, such as target tokens."""
        batch = next(batches)
        return batch, batch.tokens

    def batch_loss(self, model: Model, loss: LossFunction = of_translation) -> BatchLoss:
        """The loss of a batch, whose gradients are those of all processes together."""
        return partial(loss, model)

    def no_sync(self, loss: BatchLoss) -> AbstractContextManager[None]:
        """Within the block gradients stay in their own process: for all batches of an update but the last."""
        return nullcontext()

    def all_reduce(self, value: Tensor) -> Tensor:
        """The sum over all processes, which each of them gets."""
        return value

    def sync_stop(self, asked: bool, seconds: float) -> tuple[bool, float]:
        """Whether any was asked to stop, and what the first one's clock says."""
        return asked, seconds

    def from_rank0(self, work: Callable[[], T]) -> T:
        """What the first process found, which all get; it is such as JSON can say."""
        return work()

    def from_local_rank0(self, work: Callable[[], T]) -> T:
        """What the first process of this machine found, which all on it get; it is such as JSON can say."""
        return work()

    def prepare_model(self, model: Model, loss: LossFunction = of_translation) -> Model:
        """What holds the weights that are trained here, by this loss: the model itself, unless they are divided."""
        return model

    def broadcast_tensors(self, tensors: Mapping[str, Tensor], like: Callable[[str], Tensor]) -> dict[str, Tensor]:
        """What this process needs of the first one's tensors, by name.

        Args:
            tensors: whole; those of the other processes are not looked at.
            like: a name to the weight that the tensor is about.
        """
        return dict(tensors)

    def full_tensors(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What `parts` were taken of: in the first process; nothing in the others."""
        return tensors

    @contextmanager
    def full_parameters(self, model: Model) -> Iterator[None]:
        """The weights that are trained, whole in the first one's model, until the block ends."""
        yield

    def restore_model(self, model: Model) -> None:
        """Leave the weights that were trained in the first one's model."""

    def check_same_data(self, data: Examples[Any]) -> None:
        """Check that all have as many rows as the first, and the same outline of them."""

    def seed_rank(self, seed: int, update: int) -> None:
        """Have each process draw other random numbers in an update, the same whenever it is repeated."""

    def barrier(self) -> None:
        """Wait until all are here."""


class ProcessGroup(Processes):
    """Several processes, each of which knows its place among them; made by `process_group`.

    Args:
        rank: which of them this one is, from 0.
        number: how many they are.
        here: the rank of the first one on this machine; its own unless given.
    """

    def __init__(self, rank: int, number: int, here: int | None = None) -> None:
        self.rank, self.world_size = rank, number
        self._local_rank0 = rank if here is None else here
        self._losses: list[DistributedDataParallel] = []

    @property
    def is_local_rank0(self) -> bool:
        return self.rank == self._local_rank0

    def next_part(self, batches: BatchStream[Any]) -> tuple[Any, int]:
        return batches.next_shard(self.rank, self.world_size)

    def batch_loss(self, model: Model, loss: LossFunction = of_translation) -> BatchLoss:
        together = DistributedDataParallel(LossModule(model, loss), gradient_as_bucket_view=True)
        # Each process' loss is its share of the whole one: gradients are to be added up, where PyTorch would take their mean.
        together.register_comm_hook(None, _sum_hook)
        self._losses.append(together)
        return together

    def no_sync(self, loss: BatchLoss) -> AbstractContextManager[None]:
        assert isinstance(loss, DistributedDataParallel)
        return loss.no_sync()

    def all_reduce(self, value: Tensor) -> Tensor:
        dist.all_reduce(value)
        return value

    def sync_stop(self, asked: bool, seconds: float) -> tuple[bool, float]:
        said = self.all_reduce(torch.tensor([float(asked), seconds if self.is_rank0 else 0.0], dtype=torch.float64)).tolist()
        return said[0] > 0, said[1]

    def from_rank0(self, work: Callable[[], T]) -> T:
        text = torch.tensor(list(json.dumps(work()).encode()), dtype=torch.uint8) if self.is_rank0 else torch.empty(0, dtype=torch.uint8)
        length = self.all_reduce(torch.tensor(len(text)))
        text = text if self.is_rank0 else torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(text, 0)
        return json.loads(bytes(text.tolist()))

    def from_local_rank0(self, work: Callable[[], T]) -> T:
        text = json.dumps(work()).encode() if self.is_local_rank0 else b""
        longest = torch.tensor(len(text))
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        found = [torch.empty(int(longest), dtype=torch.uint8) for _ in range(self.world_size)]
        # JSON has nothing against blanks at its end
        dist.all_gather(found, torch.tensor(list(text.ljust(len(found[0]))), dtype=torch.uint8))
        return json.loads(bytes(found[self._local_rank0].tolist()))

    def broadcast_tensors(self, tensors: Mapping[str, Tensor], like: Callable[[str], Tensor]) -> dict[str, Tensor]:
        known = self.from_rank0(lambda: {name: _tensor_spec(tensor) for name, tensor in tensors.items()})
        found: dict[str, Tensor] = {}
        for name, (shape, dtype, device) in known.items():
            tensor = (
                tensors[name].detach().contiguous() if self.is_rank0 else torch.empty(shape, dtype=getattr(torch, dtype), device=device)
            )
            dist.broadcast(tensor, 0)
            found[name] = self._local_part(tensor, like(name))
        return found

    def _local_part(self, tensor: Tensor, like: Tensor) -> Tensor:
        return tensor

    def check_same_data(self, data: Examples[Any]) -> None:
        rows, *digest = data.digest()
        most, first = self.from_rank0(lambda: (rows, digest))
        if rows != most:
            raise RunError(f"process {self.rank} has {rows:,} {data.row_name}s to learn where the first one has {most:,}")
        if digest != first:
            raise RunError(f"process {self.rank} has other {data.row_name}s to learn than the first one")

    def seed_rank(self, seed: int, update: int) -> None:
        # The first one's generator is in the checkpoints; those of the others need not be.
        if not self.is_rank0:
            torch.manual_seed(int(np.random.SeedSequence((seed, self.rank, update)).generate_state(1, np.uint64)[0] >> 1))

    def barrier(self) -> None:
        self.all_reduce(torch.zeros(1))

    def destroy(self) -> None:
        """Part with the others; nothing that is exchanged with them can be asked for any more."""
        # An error's traceback holds losses, and these hold PyTorch's group. Whoever lets go of that last waits for its threads, which a
        # loss' reducer does without letting Python run meanwhile: for ever, where such a thread is about to free a tensor of Python's.
        last = dist.group.WORLD
        while self._losses:
            loss = self._losses.pop()
            del loss.reducer, loss.logger, loss.process_group
        dist.destroy_process_group()
        del last


@contextmanager
def process_group(device: torch.device = CPU) -> Iterator[Processes]:
    """The processes that a launcher such as torchrun has started along with this one, until the block ends.

    Without a launcher that is this process alone, and nothing is changed. Else each takes its share of the machine's
    cores, unless OMP_NUM_THREADS names more than one, or the GPU of its number on its machine. One in which something goes wrong is to
    end: then the others hear of it, and end too.

    Args:
        device: where each of them computes; they speak through gloo on CPUs and through NCCL on GPUs.

    Raises:
        DeviceError: there are fewer GPUs than processes, or one GPU is named for several processes.
        RunError: another process has ended.
    """
    number, on_gpu = _world_size(), device.type == "cuda"
    if number == 1:
        if on_gpu and device.index is not None:
            # its random numbers are those of a checkpoint
            torch.cuda.set_device(device)
        yield SINGLE_PROCESS
        return
    if on_gpu:
        torch.cuda.set_device(_local_gpu(device))
    # torchrun sets it to 1 where nobody has said anything
    elif os.environ.get("OMP_NUM_THREADS", "1") == "1":
        torch.set_num_threads(max(1, _cores() // int(os.environ.get(LOCAL_WORLD, number))))
    group = None
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=TIMEOUT)
        # a launcher that says nothing of machines may have started each process on one of its own
        group = ProcessGroup(dist.get_rank(), number, dist.get_rank() - int(os.environ.get(LOCAL_RANK, "0")))
        yield group
        group.barrier()
    except RuntimeError as error:
        if not is_peer_loss(error):
            raise
        raise RunError("another process of this training has ended, and this one with it; the reason is in its messages") from error
    finally:
        if group is not None:
            group.destroy()


def is_peer_loss(error: Exception) -> bool:
    """Whether it is by an error of this kind that a process hears of the end of another."""
    return isinstance(error, dist.DistError) or GLOO in str(error)


def is_main_process() -> bool:
    """Whether this is the process that a person hears of, before and after it is `process_group` too."""
    return _world_size() == 1 or os.environ[RANK] == "0"


def is_local_main_process() -> bool:
    """Whether this is the process of its machine that a person hears of what the machine does not have."""
    return _world_size() == 1 or os.environ.get(LOCAL_RANK, "0") == "0"


def silent_progress() -> Progress:
    """For a process that is not the first: nothing is shown."""
    return Progress(_NullStream())


class _NullStream(io.StringIO):
    def write(self, text: str) -> int:
        return len(text)


class LossModule(nn.Module):
    """What PyTorch's ways to train together look for: a module whose forward is the loss."""

    def __init__(self, model: Model, loss: LossFunction) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Any, label_smoothing: float, precision: Precision) -> tuple[Tensor, int]:
        return self.loss(self.model, batch, label_smoothing, precision)


def _tensor_spec(tensor: Tensor) -> tuple[list[int], str, str]:
    return list(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor.device.type


# PyTorch reads the annotations of such a function, if there are any, and knows none that are text.
def _sum_hook(state, bucket):
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda sums: sums.value()[0])


def _world_size() -> int:
    """How many processes a launcher has started."""
    return int(os.environ.get(WORLD, 1)) if os.environ.get(ADDRESS) and os.environ.get(RANK) else 1


def _local_gpu(device: torch.device) -> int:
    """The number of the GPU that is this process' own."""
    rank, gpus = int(os.environ.get(LOCAL_RANK, os.environ[RANK])), torch.cuda.device_count()
    number = int(os.environ.get(LOCAL_WORLD, rank + 1))
    if device.index is not None:
        raise DeviceError(f"several processes train on a GPU each: device 'cuda', not {str(device)!r}")
    if number > gpus:
        raise DeviceError(f"{number} processes on this machine need a GPU each, and it has {gpus}: start {gpus}, or train on device 'cpu'")
    return rank


def _cores() -> int:
    """How many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


SINGLE_PROCESS = Processes()
