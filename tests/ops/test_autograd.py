from typing import Any

import pytest
import torch
from torch import Tensor

from attent import attend
from attent.attention.backends import bands
from attent.attention.masks import Window
from attent.ops import native, sdpa
from attent.ops.autograd import Captures, Replacement, no_autocast

B, H, T, D = 2, 3, 29, 8
CALLS: dict[str, dict[str, Any]] = {
    "sdpa": {},
    "sdpa, long": {"implementation": "sdpa"},
    "sdpa, bands": {"implementation": "sdpa", "mask": Window(3, 0)},
    "dropout": {"dropout": 0.2, "seed": 1, "implementation": "tiled"},
    "dense": {"implementation": "dense"},
    "tiled": {"implementation": "tiled"},
}


def gradients(call: dict[str, Any], within: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    tensors = [torch.randn(B, H, T, D, generator=generator).requires_grad_() for _ in range(3)]
    with torch.autocast("cpu", torch.bfloat16):
        loss = attend(*tensors, **call).square().sum()
        if not within:
            torch.set_autocast_enabled("cpu", False)
        return list(torch.autograd.grad(loss, tensors))


@pytest.mark.parametrize("name", CALLS)
def test_gradients_taken_within_autocast_are_those_taken_outside(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call: dict[str, Any] = {"score": "scaled_dot", "implementation": "sdpa"} | CALLS[name]
    if name == "dense" and native.library() is None:
        pytest.skip("the extension is not compiled")
    if name == "sdpa, long":
        monkeypatch.setattr(sdpa, "SHORT", 0)
    if call["implementation"] == "tiled":
        monkeypatch.setattr(bands, "TILE", 1000)
        monkeypatch.setattr(bands, "WHOLE", 0)
    torch.testing.assert_close(gradients(call, True), gradients(call, False), rtol=1e-5, atol=1e-5)


def test_it_is_off_within_and_on_again_behind() -> None:
    flags: list[bool] = []

    @no_autocast
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        flags.append(torch.is_autocast_enabled("cpu"))
        return gradient

    with torch.autocast("cpu", torch.bfloat16):
        backward(None, torch.ones(1))
        assert torch.is_autocast_enabled("cpu")
    assert flags == [False]


def test_tensors_computed_of_leaves_are_found() -> None:
    leaf = torch.randn(3, requires_grad=True)
    first, second = (2 * leaf).unbind()[:2]
    with Captures() as captures:
        torch.add(first, torch.ones(()))
    assert captures.by_edge[first.grad_fn, first.output_nr] is first
    # another output of the same function is not taken for it
    assert (second.grad_fn, second.output_nr) not in captures.by_edge


def test_a_replaced_tensor_gets_no_gradient_but_its_stand_in_does() -> None:
    leaf = torch.randn(3, requires_grad=True)
    computed, second = 2 * leaf, torch.ones(3, requires_grad=True)
    with Replacement({id(computed): second}):
        result = torch.stack([computed, computed]).sum()
    assert result.item() == 6
    gradients = torch.autograd.grad(result, [leaf, second], allow_unused=True)
    assert gradients[0] is None
    assert gradients[1] is not None
    assert gradients[1].tolist() == [2, 2, 2]
