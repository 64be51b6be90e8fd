"""Training on several processes, each of which holds a part of the weights, their gradients, moments and averages.

A layer's weights are gathered when the layer runs and freed afterwards (but not the 16-bit copies that autocast makes
of them, which live until gradients are computed). The original model is empty meanwhile: only process 0 has its full
weights, and only during validation and at the end.
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
from attent.training.loss import LossFunction, translation_cross_entropy


class Sharded(ProcessGroup):
    """Several processes that divide weights, gradients, moments and averages among them, by PyTorch's `fully_shard`.

    Source: Rajbhandari et al. (2020), ZeRO, §5.3, arXiv 1910.02054; Zhao et al. (2023), PyTorch FSDP, arXiv 2304.11277.
    """

    sharded = True

    def prepare_model(self, model: Model, loss: LossFunction = translation_cross_entropy) -> Model:
        """Return a sharded copy with the weights of process 0, and empty the model."""
        # FSDP warns that a layer returns views, which must not be written to; nothing writes to these.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
        weights = tensors_of(model)
        mesh = init_device_mesh(next(iter(weights.values())).device.type, (self.world_size,))
        # The memo keeps deepcopy from copying the weights, of which fully_shard takes its parts.
        sharded_model = copy.deepcopy(model, {id(weight): weight for weight in weights.values()})
        self._loss = LossModule(sharded_model, loss)
        for module in (*sharded_model.units, self._loss):
            unit = cast(FSDPModule, fully_shard(module, mesh=mesh))
            # A process' loss is its share of the batch's mean: gradients are summed, where PyTorch would average them.
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(True)
        self._sharded_weights = tensors_of(sharded_model)
        with torch.no_grad():
            for name, tensor in self._sharded_weights.items():
                tensor.copy_(self.broadcast_tensors({name: weights[name]}, lambda _, like=tensor: like)[name])
        _empty(weights)
        return sharded_model

    def batch_loss(self, model: Model, loss: LossFunction = translation_cross_entropy) -> BatchLoss:
        return self._loss

    def no_sync(self, loss: BatchLoss) -> AbstractContextManager[None]:
        # Gradients that are not reduced yet would need memory for the whole model.
        return nullcontext()

    def gather_tensors(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        result: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            # Every process takes part in gathering.
            full = tensor.full_tensor().detach() if isinstance(tensor, DTensor) else tensor
            if self.is_rank0:
                result[name] = full.cpu()
        return result

    @contextmanager
    def full_parameters(self, model: Model) -> Iterator[None]:
        self.gather_weights_into(model)
        try:
            yield
        finally:
            _empty(tensors_of(model))

    def gather_weights_into(self, model: Model) -> None:
        weights = tensors_of(model)
        for name, tensor in self._sharded_weights.items():
            full = self.gather_tensors({name: tensor})
            if self.is_rank0:
                weights[name].data = full[name].to(weights[name].device)

    def _local_part(self, tensor: Tensor, like: Tensor) -> Tensor:
        # Tensors of another shape, such as an optimizer's step count, are replicated.
        if not isinstance(like, DTensor) or tensor.shape != like.shape:
            return tensor
        # Cloned, since the part would keep the full tensor alive.
        return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None).clone()


def _empty(weights: Mapping[str, Tensor]) -> None:
    """Free the memory of weights; their shapes stay."""
    for weight in weights.values():
        weight.data = weight.new_zeros(()).expand(weight.shape)
