"""A GPU: the machine's, or an emulated one.

The latter's tensors are stored on the CPU but cannot be mixed with CPU tensors in an operator. PyTorch's C++ code takes
an emulated tensor to be on the device "meta"; Python code takes it to be on "cuda:0".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from attent.search.settings import SearchSettings

GPU, IN_C = torch.device("cuda", 0), torch.device("meta")
OPERATORS = torch.ops.aten
# What C++ code computes, also while a capture has put its own function in this one's place.
SDPA = F.scaled_dot_product_attention
# Operators that copy from one device to another.
COPIES = {OPERATORS._to_copy.default, OPERATORS.copy_.default, OPERATORS._foreach_copy_.default}
# Operators that accept indices on the CPU.
INDEXING = {
    OPERATORS.index.Tensor,
    OPERATORS.index_put.default,
    OPERATORS.index_put_.default,
    OPERATORS._index_put_impl_.default,
}


class MixedDevicesError(RuntimeError):
    """An error for an operator on tensors of two devices, as PyTorch raises."""


class GpuTensor(Tensor):
    """A tensor that claims to be on the GPU."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore[reportAssignmentType]

    @staticmethod
    def __new__(cls, held: Tensor, requires_grad: bool = False) -> GpuTensor:
        assert not isinstance(held, GpuTensor)
        assert held.device.type == "cpu"
        sizes = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        with torch.inference_mode(held.is_inference()):
            result = Tensor._make_wrapper_subclass(
                cls, held.size(), **sizes, dtype=held.dtype, device=IN_C, requires_grad=requires_grad
            )
        result.held = held
        return result

    device = property(lambda self: GPU)  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    is_cuda = property(lambda self: True)  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    is_cpu = is_meta = property(lambda self: False)  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

    def __repr__(self, **_: Any) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return f"GpuTensor({self.held!r})"

    def tolist(self) -> Any:
        return self.held.tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def data_ptr(self) -> int:
        raise AssertionError("an address on a GPU is of no use to the CPU")

    @classmethod
    def __torch_dispatch__(
        cls, operator: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if torch.is_inference_mode_enabled():
            # in inference mode composite operators arrive undecomposed
            result = operator.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        return _computed(operator, args, dict(kwargs or {}))


def _computed(operator: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run an operator on the tensors' stored values."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    of_gpu = {id(tensor.held): tensor for tensor in tensors if isinstance(tensor, GpuTensor)}
    of_cpu = [tensor for tensor in tensors if not isinstance(tensor, GpuTensor) and tensor.dim()]
    if of_gpu and of_cpu and operator not in COPIES | INDEXING:
        raise MixedDevicesError(f"{operator}: {[(type(tensor).__name__, tuple(tensor.shape)) for tensor in tensors]}")
    target = kwargs.get("device")
    stays = bool(of_gpu) if target is None else torch.device(target).type != "cpu"
    if operator is OPERATORS.copy_.default:
        stays = isinstance(args[0], GpuTensor)
    held_args, held_kwargs = tree_map_only(GpuTensor, lambda tensor: tensor.held, (tuple(args), kwargs))
    if target is not None:
        held_kwargs["device"] = torch.device("cpu")
    result = operator(*held_args, **held_kwargs)
    if not stays:
        return result
    # an in-place operator returns the same tensor
    return tree_map_only(
        Tensor, lambda tensor: of_gpu[id(tensor)] if id(tensor) in of_gpu else GpuTensor(tensor), result
    )


class _Factories(TorchDispatchMode):
    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "meta":
            return _computed(operator, args, kwargs)
        return operator(*args, **kwargs)


class _Functions(TorchFunctionMode):
    """A mode that translates the device "cuda" to the one that C++ code knows."""

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        if function in (torch.tensor, torch.as_tensor):
            result = function(*args, **(kwargs | {"device": None}))
            return result if device is None else result.to(_in_c(device))
        if device is not None:
            kwargs["device"] = _in_c(device)
        if function is Tensor.to:
            args = [_in_c(argument) for argument in args]
        if function is SDPA and isinstance(args[0], GpuTensor):
            # its C++ code makes tensors that no mode intercepts
            return _attention(*args, **kwargs)
        if function in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[0], GpuTensor):
            args = [args[0], _index_tensors(args[1]), *args[2:]]
        if function in (torch.gru, torch.lstm) and args[-1] and isinstance(args[0], GpuTensor):
            # they transpose their result in place, unseen by a wrapper
            features, *states = function(args[0].transpose(0, 1), *args[1:-1], False, **kwargs)
            return features.transpose(0, 1), *states
        return function(*args, **kwargs)


def _index_tensors(index: Any) -> Any:
    """Convert lists in an index to tensors, which C++ code would create on the device that it knows."""
    if isinstance(index, tuple):
        return tuple(map(_index_tensors, index))
    return torch.tensor(index) if isinstance(index, list) else index


def _in_c(argument: Any) -> Any:
    named = isinstance(argument, str) and argument.startswith("cuda")
    return IN_C if named or (isinstance(argument, torch.device) and argument.type == "cuda") else argument


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    assert dropout_p == 0.0
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones_like(scores, dtype=torch.bool).tril()
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return scores.softmax(-1) @ value


@contextmanager
def pretended() -> Iterator[torch.device]:
    """Emulate a GPU for code within the block."""
    swapping = torch.__future__.get_swap_module_params_on_conversion()
    # keep tied weights tied when a module is moved, as on a GPU
    torch.__future__.set_swap_module_params_on_conversion(True)
    stand_ins = {
        "torch.cuda.is_available": lambda: True,
        # recurrent layers ask this
        "torch.backends.cudnn.is_acceptable": lambda *_: False,
        "torch.cuda.is_bf16_supported": lambda *_: True,
        "torch.cuda.device_count": lambda: 1,
        "torch.cuda.current_device": lambda: 0,
        "torch.cuda.get_device_name": lambda *_: "pretended",
        "torch.cuda.set_device": lambda *_: None,
        "torch.cuda.synchronize": lambda *_: None,
        # an optimizer asks it whether a graph is being recorded
        "torch.accelerator.current_accelerator": lambda *_, **__: None,
        "torch.cuda.get_rng_state": lambda *_: torch.get_rng_state(),
        "torch.cuda.set_rng_state": lambda *_: None,
        # no kernels can be compiled
        "attent.ops.eligibility.TRITON_INSTALLED": False,
    }
    patches = [patch(name, stand_in) for name, stand_in in stand_ins.items()]
    for stand_in_patch in patches:
        stand_in_patch.start()
    try:
        with _Functions(), _Factories():
            yield GPU
    finally:
        for stand_in_patch in patches:
            stand_in_patch.stop()
        torch.__future__.set_swap_module_params_on_conversion(swapping)


@pytest.fixture
def gpu() -> Iterator[torch.device]:
    """The first GPU of this machine, or an emulated one."""
    if torch.cuda.is_available():
        yield torch.device("cuda", 0)
        return
    with pretended() as device:
        yield device


@pytest.fixture
def few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let translations end after 8 tokens; those of untrained models would end at a limit of many."""
    limits = SearchSettings.limits
    monkeypatch.setattr(SearchSettings, "limits", lambda *args: limits(*args).clip(max=8))
