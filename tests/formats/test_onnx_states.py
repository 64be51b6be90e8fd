from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attent.formats.onnx_graphs import flatten_state, unflatten_state


class Pair(NamedTuple):
    one: Tensor
    other: Tensor | None = None


@dataclass(frozen=True)
class State:
    length: int
    layers: tuple[Any, ...]
    beside: Tensor


def state(*numbers: float) -> State:
    first, second, third, fourth = (torch.tensor([number]) for number in numbers)
    return State(7, (Pair(first), None, Pair(second, third)), fourth)


def test_every_tensor_has_the_name_of_its_path() -> None:
    flat_state = flatten_state(state(1, 2, 3, 4))
    assert [(name, tensor.tolist()) for name, tensor in flat_state] == [
        ("state.length", [7]),
        ("state.layers.0.one", [1]),
        ("state.layers.2.one", [2]),
        ("state.layers.2.other", [3]),
        ("state.beside", [4]),
    ]
    assert flat_state[-1][1] is not None


def test_a_state_is_filled_with_others_in_their_order() -> None:
    inputs = [tensor for _, tensor in flatten_state(state(5, 6, 7, 8))]
    result = unflatten_state(state(1, 2, 3, 4), iter(inputs))
    assert all(first is second for (_, first), second in zip(flatten_state(result), inputs, strict=True))
    assert type(result.layers[0]) is Pair
    assert result.layers[1] is None
