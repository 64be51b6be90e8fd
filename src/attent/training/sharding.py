"""Training on several processes, each of which holds a part of the weights, of their gradients, moments and means.

A layer's weights are gathered when it is used, and let go behind it (but not the 16-bit copies that autocast makes of them,
which stay until gradients are computed). The model itself is empty meanwhile: its weights are whole in the first process
alone, and only while it is judged and when training has ended.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import cast

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from attent.models.model import Model
from attent.runs.weights import tensors_of
from attent.training.distributed import BatchLoss, LossModule, ProcessGroup
from attent.training.loss import LossFunction
from attent.training.loss import translation_loss as of_translation


class Sharded(ProcessGroup):
    """Several processes that divide weights, gradients, moments and means among them, by PyTorch's `fully_shard`.

    Source: Rajbhandari et al. (2020), ZeRO, §5.3, arXiv 1910.02054; Zhao et al. (2023), PyTorch FSDP, arXiv 2304.11277.
    """

    sharded = True

    def prepare_model(self, model: Model, loss: LossFunction = of_translation) -> Model:
        """A copy of which each process holds a part, with the first one's weights; the model is left empty."""
        # it warns of views that a layer returns, for whoever might write into them: nobody writes into the caches that these are
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
        weights = tensors_of(model)
        mesh = init_device_mesh(next(iter(weights.values())).device.type, (self.world_size,))
        # the weights are not copied: the parts are cut out of them
        divided = copy.deepcopy(model, {id(weight): weight for weight in weights.values()})
        self._loss = LossModule(divided, loss)
        for module in (*divided.units, self._loss):
            unit = cast(FSDPModule, fully_shard(module, mesh=mesh))
            # Each process' loss is its share of the whole one: gradients are to be added up, where PyTorch would take their mean.
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(True)
        self._divided = tensors_of(divided)
        self._fill(weights)
        _empty(weights)
        return divided

    def batch_loss(self, model: Model, loss: LossFunction = of_translation) -> BatchLoss:
        # that of `prepare_model`
        return self._loss

    def no_sync(self, loss: BatchLoss) -> AbstractContextManager[None]:
        # gradients that were not added up yet would have to be whole
        return nullcontext()

    def full_tensors(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            # all have to take part in each
            gathered = tensor.full_tensor().detach() if isinstance(tensor, DTensor) else tensor
            if self.is_rank0:
                found[name] = gathered.cpu()
        return found

    @contextmanager
    def full_parameters(self, model: Model) -> Iterator[None]:
        self.restore_model(model)
        try:
            yield
        finally:
            _empty(tensors_of(model))

    def restore_model(self, model: Model) -> None:
        places = tensors_of(model)
        for name, tensor in self._divided.items():
            weight = self.full_tensors({name: tensor})
            if self.is_rank0:
                places[name].data = weight[name].to(places[name].device)

    def _local_part(self, tensor: Tensor, like: Tensor) -> Tensor:
        # what is no weight's, such as the number of a moment's steps, is everyone's
        if not isinstance(like, DTensor) or tensor.shape != like.shape:
            return tensor
        # a copy, or the whole tensor would stay
        return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None).clone()

    @torch.no_grad()
    def _fill(self, weights: Mapping[str, Tensor]) -> None:
        for name, tensor in self._divided.items():
            tensor.copy_(self.broadcast_tensors({name: weights[name]}, lambda _, place=tensor: place)[name])


def _empty(weights: Mapping[str, Tensor]) -> None:
    """Let the memory of some weights go; their shapes stay."""
    for weight in weights.values():
        weight.data = weight.new_zeros(()).expand(weight.shape)
