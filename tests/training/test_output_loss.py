from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attent.training import output_loss as fused
from attent.training.output_loss import output_loss


def given(dtype: torch.dtype = torch.float64, tokens: int = 13, bias: bool = True) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    features, weight = torch.randn(tokens, 5, dtype=dtype).requires_grad_(), torch.randn(7, 5, dtype=dtype).requires_grad_()
    return features, weight, torch.randn(7, dtype=dtype).requires_grad_() if bias else None, torch.randint(0, 7, (tokens,))


def textbook(features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(F.linear(features, weight, bias), target, label_smoothing=smoothing)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("least", [1, 5, 128])
def test_loss_and_gradients_are_those_of_the_two_in_turn(bias: bool, smoothing: float, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "CHUNK", 7 * least)
    monkeypatch.setattr(fused, "LEAST", least)
    features, weight, shift, target = given(bias=bias)
    inputs = [tensor for tensor in (features, weight, shift) if tensor is not None]
    losses = [way(features, weight, shift, target, smoothing) for way in (output_loss, textbook)]
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*(torch.autograd.grad(3 * loss, inputs) for loss in losses))


def test_in_16_bits_the_product_alone_is_rounded() -> None:
    features, weight, bias, target = given(torch.float32, tokens=200)
    with torch.autocast("cpu", torch.bfloat16):
        loss = output_loss(features, weight, bias, target, 0.1)
    assert loss.dtype == torch.float32
    inputs = (features, weight, bias)
    expected = textbook(*inputs, target, 0.1)
    torch.testing.assert_close(loss, expected, atol=1e-2, rtol=1e-2)
    for ours, theirs in zip(torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, inputs), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, atol=2e-3, rtol=5e-2)


def test_without_gradients_none_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    features, weight, bias, target = given()
    expected = textbook(features, weight, bias, target, 0.2)

    def never(*arguments: Any, **more: Any) -> Tensor:
        raise AssertionError

    monkeypatch.setattr(torch, "mm", never)
    with torch.no_grad():
        torch.testing.assert_close(output_loss(features, weight, bias, target, 0.2), expected.detach())


def test_no_tensor_of_all_logits_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "CHUNK", 1)
    monkeypatch.setattr(fused, "LEAST", 16)
    sizes: list[int] = []
    real = F.log_softmax

    def watched(logits: Tensor, axis: int) -> Tensor:
        sizes.append(logits.numel())
        return real(logits, axis)

    monkeypatch.setattr(F, "log_softmax", watched)
    features, weight, bias, target = given(tokens=100)
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor.numel()) or tensor, lambda tensor: tensor):
        output_loss(features, weight, bias, target).backward()
    assert max(sizes) == 16 * 7
    assert max(saved) <= 100 * 5


def test_one_number_by_hand() -> None:
    # logits log 3 and 0: p = 3/4 and 1/4
    features, weight = torch.tensor([[3.0]]).log(), torch.tensor([[1.0], [0.0]])
    assert output_loss(features, weight, None, torch.tensor([1])).item() == pytest.approx(1.3862944)  # log 4
