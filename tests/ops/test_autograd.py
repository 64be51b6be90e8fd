from typing import Any

import pytest
import torch
from torch import Tensor

from attent import attend
from attent.attention.backends import bands
from attent.attention.masks import Window
from attent.ops import native, sdpa

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
