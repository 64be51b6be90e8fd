from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attent.ops import linear_cross_entropy as fused
from attent.ops import native
from attent.ops.linear_cross_entropy import linear_cross_entropy


def make_inputs(
    dtype: torch.dtype = torch.float64, tokens: int = 13, bias: bool = True, classes: int = 7
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    shapes = (tokens, 5), (classes, 5), (classes,)
    features, weight, shift = (torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes)
    return features, weight, shift if bias else None, torch.randint(0, classes, (tokens,))


def textbook(features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(F.linear(features, weight, bias), target, label_smoothing=smoothing)


def chunk_loss(*arguments: Any) -> fused.ChunkLoss:
    """The loss of logits and its slopes, by the way that is to be had."""
    return (fused._native_loss if native.library() is not None else fused.reference_loss)(*arguments)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHUNK", "NATIVE_BYTES"):
        monkeypatch.setattr(fused, name, 1)
    for name in ("MIN_TOKENS", "MIN_NATIVE_TOKENS"):
        monkeypatch.setattr(fused, name, 23)


@pytest.mark.parametrize(
    ("bias", "smoothing", "minimum"), [(True, 0.1, 1), (False, 0.0, 5), (True, 0.0, 128), (False, 1.0, 1)]
)
def test_loss_and_gradients_are_those_of_the_two_in_turn(
    bias: bool, smoothing: float, minimum: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "CHUNK", 7 * minimum)
    monkeypatch.setattr(fused, "MIN_TOKENS", minimum)
    features, weight, shift, target = make_inputs(bias=bias)
    inputs = [tensor for tensor in (features, weight, shift) if tensor is not None]
    losses = [way(features, weight, shift, target, smoothing) for way in (linear_cross_entropy, textbook)]
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*(torch.autograd.grad(3 * loss, inputs) for loss in losses))


@pytest.mark.usefixtures("way", "small_chunks")
@pytest.mark.parametrize(
    ("classes", "smoothing", "bias"),
    [(1, 0.1, True), (3, 0.0, False), (16, 1.0, True), (31, 0.1, False), (67, 0.0, True), (211, 0.1, True)],
)
def test_in_32_bits_all_of_it_is_as_exact_as_pytorch(bias: bool, smoothing: float, classes: int) -> None:
    inputs = make_inputs(torch.float32, tokens=59, bias=bias, classes=classes)
    results = []
    for kind, used in ((torch.float32, linear_cross_entropy), (torch.float32, textbook), (torch.float64, textbook)):
        *layer, target = (
            tensor if tensor is None or not tensor.is_floating_point() else tensor.to(kind) for tensor in inputs
        )
        loss = used(*layer, target, smoothing)
        results.append((loss, *torch.autograd.grad(loss, [tensor for tensor in layer if tensor is not None])))
    for actual, baseline, exact in zip(*results, strict=True):
        assert actual.dtype == torch.float32
        size = max(exact.abs().max().item(), 1e-3)
        assert (actual - exact).abs().max() <= 3 * (baseline - exact).abs().max() + 1e-7 * size


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("dtype", "classes"),
    [*((torch.float32, size) for size in (1, 32, 131)), (torch.bfloat16, 15), (torch.bfloat16, 1009)],
)
def test_slopes_are_rounded_once(dtype: torch.dtype, classes: int) -> None:
    logits, bias = (9 * torch.randn(37, classes)).to(dtype), torch.randn(classes)
    target = torch.randint(0, classes, (37,))
    exact = (logits.double() + bias.double()).requires_grad_()
    expected = F.cross_entropy(exact, target, label_smoothing=0.1, reduction="sum")
    slopes = torch.autograd.grad(expected, exact)[0]
    loss, result, of_bias = chunk_loss(logits.clone(), bias, target, 0.1, True)
    assert result is not None and of_bias is not None
    assert (loss.dtype, result.dtype) == (torch.float32, dtype)
    torch.testing.assert_close(loss.double(), expected.detach(), atol=1e-5, rtol=1e-6)
    torch.testing.assert_close(result.double(), slopes, atol=3e-7, rtol=2**-8 if dtype == torch.bfloat16 else 3e-6)
    torch.testing.assert_close(of_bias.double(), slopes.sum(0), atol=3e-6, rtol=3e-6)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("value", "position", "smoothing"),
    [(-math.inf, 0, 0.0), (-math.inf, 66, 0.1), (math.inf, 40, 0.1), (math.nan, 66, 0.0), (-3e38, 40, 0.1)],
)
def test_what_is_not_finite_is_as_pytorchs_and_stays_in_its_row(value: float, position: int, smoothing: float) -> None:
    logits, target = torch.randn(5, 67), torch.tensor([3, 66, 1, 40, 7])
    logits[2, position] = value
    logits[4] = -math.inf
    for row in range(5):
        single = logits[row : row + 1].clone().requires_grad_()
        logs = F.log_softmax(single, -1)
        terms = (1 - smoothing) * -logs[:, target[row]].sum()
        expected = terms - smoothing * logs.mean() if smoothing else terms
        loss, slope, _ = chunk_loss(logits[row : row + 1].clone(), None, target[row : row + 1], smoothing, True)
        torch.testing.assert_close(loss, expected.detach(), equal_nan=True)
        expected_values = logs.detach().exp() - smoothing / 67
        expected_values[0, target[row]] -= 1 - smoothing
        torch.testing.assert_close(slope, expected_values, equal_nan=True)
    _, slope, _ = chunk_loss(logits.bfloat16(), None, target, smoothing, True)
    assert slope is not None and slope[[0, 1, 3]].isfinite().all()
    assert slope[4].isnan().all()


@pytest.mark.needs_native
def test_nothing_depends_on_the_threads(assert_same_bits: Callable[..., None]) -> None:
    logits, bias, target = torch.randn(83, 301), torch.randn(301), torch.randint(0, 301, (83,))
    assert_same_bits(lambda: fused._native_loss(logits.clone(), bias, target, 0.1, True))


@pytest.mark.usefixtures("way")
def test_in_16_bits_the_product_alone_is_rounded() -> None:
    features, weight, bias, target = make_inputs(torch.float32, tokens=200)
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_cross_entropy(features, weight, bias, target, 0.1)
    assert loss.dtype == torch.float32
    inputs = (features, weight, bias)
    expected = textbook(*inputs, target, 0.1)
    torch.testing.assert_close(loss, expected, atol=1e-2, rtol=1e-2)
    for actual, reference in zip(torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, inputs), strict=True):
        assert actual.dtype == torch.float32
        torch.testing.assert_close(actual, reference, atol=2e-3, rtol=5e-2)


@pytest.mark.usefixtures("way")
def test_a_model_in_16_bits_has_gradients_in_16_bits() -> None:
    features, weight, bias, target = make_inputs(torch.bfloat16, tokens=50)
    loss = linear_cross_entropy(features, weight, bias, target, 0.1)
    assert loss.dtype == torch.float32
    expected = textbook(*(tensor.float() for tensor in (features, weight, bias)), target, 0.1)
    torch.testing.assert_close(loss, expected, atol=1e-2, rtol=1e-2)
    gradients = (torch.autograd.grad(tensor, (features, weight, bias)) for tensor in (loss, expected))
    torch.testing.assert_close(*gradients, atol=2e-3, rtol=5e-2)


@pytest.mark.usefixtures("way")
def test_parts_of_larger_tensors_are_read_where_they_lie() -> None:
    features, weight, bias, target = make_inputs(torch.float32, tokens=40)
    strided = [part.T.contiguous().T for part in (features, weight)]
    strided += [torch.stack((part, part), 1)[:, 0] for part in (bias, target)]
    torch.testing.assert_close(linear_cross_entropy(*strided, 0.1), textbook(features, weight, bias, target, 0.1))


@pytest.mark.usefixtures("way")
def test_no_tokens_have_no_loss() -> None:
    features, weight, bias, target = make_inputs(torch.float32, tokens=0)
    loss = linear_cross_entropy(features, weight, bias, target, 0.1)
    assert loss.item() == 0
    assert all(not gradient.any() for gradient in torch.autograd.grad(loss, (features, weight, bias)))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("label", [-1, 7])
def test_a_target_that_is_no_class_raises(label: int) -> None:
    features, weight, bias, target = make_inputs(torch.float32)
    target[5] = label
    with pytest.raises((RuntimeError, IndexError)):
        linear_cross_entropy(features, weight, bias, target)


@pytest.mark.usefixtures("way")
def test_without_gradients_none_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = make_inputs(torch.float32)
    expected = textbook(*inputs, 0.2)
    monkeypatch.setattr(torch, "mm", None)
    with torch.no_grad():
        torch.testing.assert_close(linear_cross_entropy(*inputs, 0.2), expected.detach())


def test_no_tensor_of_all_logits_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "CHUNK", 1)
    monkeypatch.setattr(fused, "MIN_TOKENS", 16)
    sizes: list[int] = []
    log_softmax = F.log_softmax
    monkeypatch.setattr(
        F, "log_softmax", lambda logits, axis: sizes.append(logits.numel()) or log_softmax(logits, axis)
    )
    inputs = make_inputs(tokens=100)
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda part: saved.append(part.numel()) or part, lambda part: part):
        linear_cross_entropy(*inputs).backward()
    assert max(sizes) == 16 * 7
    assert max(saved) <= 100 * 5


@pytest.mark.needs_native
def test_nor_by_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "NATIVE_BYTES", 1)
    monkeypatch.setattr(fused, "MIN_NATIVE_TOKENS", 16)
    sizes: list[int] = []
    run = native.run
    monkeypatch.setattr(
        native, "run", lambda name, parts, *numbers: sizes.append(len(parts[0])) or run(name, parts, *numbers)
    )
    linear_cross_entropy(*make_inputs(torch.float32, tokens=100)).backward()
    assert sizes == [16] * 6 + [4]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_number_by_hand(dtype: torch.dtype) -> None:
    # logits log 3 and 0: p = 3/4 and 1/4
    features, weight = torch.tensor([[3.0]], dtype=dtype).log(), torch.tensor([[1.0], [0.0]], dtype=dtype)
    assert linear_cross_entropy(features, weight, None, torch.tensor([1])).item() == pytest.approx(1.3862944)  # log 4


@pytest.mark.needs_amx
@pytest.mark.parametrize(
    ("tokens", "width", "classes", "smoothing", "bias"),
    [
        (1, 32, 1, 0.1, True),
        (7, 32, 5, 0.0, False),
        (33, 64, 97, 1.0, True),
        (513, 32, 300, 0.1, False),
        (1100, 96, 2051, 0.0, True),
    ],
)
def test_by_tiles_slopes_alone_are_rounded(tokens: int, width: int, classes: int, smoothing: float, bias: bool) -> None:
    features = torch.randn(tokens, width).bfloat16().requires_grad_()
    weight = (0.3 * torch.randn(classes, width)).bfloat16().float()
    inputs = [features, weight.requires_grad_(), *([torch.randn(classes).requires_grad_()] if bias else [])]
    target = torch.randint(0, classes, (tokens,))
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_cross_entropy(features, weight, inputs[2] if bias else None, target, smoothing)
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    expected = textbook(exact[0], exact[1], exact[2] if bias else None, target, smoothing)
    torch.testing.assert_close(loss.double(), expected, atol=3e-6, rtol=1e-6)
    gradients = torch.autograd.grad(3 * loss, inputs), torch.autograd.grad(3 * expected, exact)
    for actual, right in zip(*gradients, strict=True):
        # one class alone has no slopes
        assert (actual.double() - right).abs().max() <= 2**-7 * right.abs().max() + 1e-9


@pytest.mark.needs_amx
@pytest.mark.parametrize("value", [-math.inf, math.inf, math.nan, -3e38])
def test_by_tiles_what_is_not_finite_is_as_pytorchs_and_stays_in_its_row(value: float) -> None:
    features, weight = torch.randn(5, 32).bfloat16(), torch.randn(67, 32).bfloat16().float()
    features[2, 3], target = value, torch.tensor([3, 66, 1, 40, 7])
    actual = loss_rows(features, weight, target)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "has_amx", lambda: False)
        plain = loss_rows(features, weight, target)
    for (loss, slope), (reference, right) in zip(actual, plain, strict=True):
        torch.testing.assert_close(loss, reference, equal_nan=True, atol=2e-2, rtol=1e-2)
        assert torch.equal(slope.isnan(), right.isnan())
    bias = torch.full((67,), -math.inf)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear_cross_entropy(features[:1], weight, bias, target[:1], 0.0).isnan()
        bias[3] = 1.0
        assert linear_cross_entropy(features[:1], weight, bias, target[:1], 0.0).item() == 0


def loss_rows(features: Tensor, weight: Tensor, target: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Each token's loss, and its gradient when all are computed together."""
    features = features.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        rows = zip(features, target, strict=True)
        losses = [linear_cross_entropy(row[None], weight, None, label[None], 0.1) for row, label in rows]
        (slopes,) = torch.autograd.grad(linear_cross_entropy(features, weight, None, target, 0.1), features)
    return list(zip((loss.detach() for loss in losses), slopes, strict=True))


@pytest.mark.needs_amx
def test_by_tiles_nothing_depends_on_up_to_four_threads(assert_same_bits: Callable[..., None]) -> None:
    inputs = [torch.randn(shape).requires_grad_() for shape in ((1201, 32), (901, 32), (901,))]
    target = torch.randint(0, 901, (1201,))

    def compute() -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            loss = linear_cross_entropy(*inputs, target, 0.1)
        return [loss, *torch.autograd.grad(loss, inputs)]

    assert_same_bits(compute, (1, 2, 4))
