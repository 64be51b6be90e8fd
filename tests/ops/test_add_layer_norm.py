from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.layers.dropout import Dropout
from attent.ops.add_layer_norm import add_layer_norm
from attent.ops.dropout import keep_mask

SHARE, HALF = 0.3, torch.bfloat16


def layer(width: int) -> nn.LayerNorm:
    norm = nn.LayerNorm(width)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


def stays(seed: int, number: int, width: int, share: float = SHARE) -> Tensor:
    """What a sweep keeps if torch's generator was seeded with this before."""
    torch.manual_seed(seed)
    rows = torch.arange(number)
    return keep_mask(rows, torch.arange(width), 1, 1, share, int(torch.randint(2**31 - 1, ())))[0, 0]


def error(actual: Tensor, exact: Tensor) -> float:
    return ((actual.double() - exact).abs().max() / exact.abs().max()).item()


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize(
    ("shape", "of_output", "of_norm", "uses_both"),
    [
        ((5,), torch.float32, torch.float32, True),
        ((3, 5, 7), HALF, HALF, True),
        ((2, 67, 16), torch.float32, torch.float32, False),
        ((2, 67, 16), None, HALF, False),
        ((131, 43), HALF, torch.float32, True),
        ((131, 43), torch.float32, torch.float32, True),
        ((5, 128), HALF, HALF, False),
        ((5, 128), None, torch.float32, False),
    ],
)
def test_agrees_with_the_formula(
    shape: tuple[int, ...], of_output: torch.dtype | None, of_norm: torch.dtype, uses_both: bool
) -> None:
    width, number = shape[-1], math.prod(shape[:-1])
    norm, saved = layer(width), stays(1, number, width).view(shape)
    features = (torch.randn(shape) + 2).requires_grad_()
    output = torch.randn(shape).to(of_output or HALF).requires_grad_()
    inputs = [features, norm.weight, norm.bias, *([] if of_output is None else [output])]
    exact_inputs = [tensor.detach().double().requires_grad_() for tensor in inputs]
    exact_features, weight, bias, *exact_output = exact_inputs
    exact = exact_features + exact_output[0] * saved / (1 - SHARE) if exact_output else exact_features
    exact_norm = F.layer_norm(exact, (width,), weight, bias, norm.eps)
    torch.manual_seed(1)
    joint, normalised = add_layer_norm(features, None if of_output is None else output, norm, SHARE, of_norm)
    assert normalised.dtype == of_norm
    assert error(joint, exact) < 5e-7
    assert error(normalised, exact_norm) < (2e-6 if of_norm == torch.float32 else 2**-8)
    gradients = [torch.randn(shape), torch.randn(shape).to(of_norm)]
    if uses_both:
        actual = torch.autograd.grad((joint, normalised), inputs, gradients)
        expected = torch.autograd.grad((exact, exact_norm), exact_inputs, [gradient.double() for gradient in gradients])
    else:
        actual = torch.autograd.grad(normalised, inputs, gradients[1])
        expected = torch.autograd.grad(exact_norm, exact_inputs, gradients[1].double())
    for result, right in zip(actual, expected, strict=True):
        assert error(result, right) < (2**-8 if result.dtype == HALF else 5e-6)


@pytest.mark.parametrize(("training", "dtype"), [(False, torch.float32), (True, torch.float64)])
def test_elsewhere_pytorch_computes_it(training: bool, dtype: torch.dtype) -> None:
    norm, module = layer(7).to(dtype).train(training), Dropout(SHARE).train(training)
    features, output = torch.randn(3, 7, dtype=dtype), torch.randn(3, 7, dtype=dtype)
    torch.manual_seed(3)
    joint, normalised = add_layer_norm(features, output, norm, module.active_share, dtype)
    torch.manual_seed(3)
    assert torch.equal(joint, features + module(output))
    assert torch.equal(normalised, norm(joint))


@pytest.mark.needs_native
def test_what_goes_follows_from_torchs_seed_and_changes_from_call_to_call() -> None:
    norm, features, output = layer(13), torch.randn(7, 11, 13), torch.randn(7, 11, 13)

    def sums(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        return [add_layer_norm(features, output, norm, SHARE, torch.float32)[0] for _ in range(2)]

    first, second = sums(3)
    assert torch.equal(torch.stack(sums(3)), torch.stack((first, second)))
    assert not torch.equal(first, second)


@pytest.mark.needs_native
def test_what_goes_was_nothing_whatever_it_held() -> None:
    norm, gone = layer(19), ~stays(4, 17, 19)
    torch.manual_seed(4)
    output = torch.zeros(17, 19).masked_fill(gone, math.nan)
    joint, _ = add_layer_norm(torch.ones(17, 19), output, norm, SHARE, torch.float32)
    assert torch.equal(joint, torch.ones(17, 19))


@pytest.mark.needs_native
def test_nan_stays_nan_in_bfloat16() -> None:
    features = torch.tensor([[math.nan, 1.0, 2.0], [1.0, 2.0, 3.0]])
    _, normalised = add_layer_norm(features, None, layer(3), 0.0, HALF)
    assert normalised.isnan().tolist() == [[True] * 3, [False] * 3]


@pytest.mark.needs_native
def test_bits_do_not_depend_on_the_threads(assert_same_bits: Callable[..., None]) -> None:
    norm, (features, output) = layer(37), torch.randn(2, 1013, 37, requires_grad=True)

    def gradients() -> tuple[Tensor, ...]:
        torch.manual_seed(5)
        results = add_layer_norm(features, output, norm, SHARE, torch.float32)
        return torch.autograd.grad(results, (features, output, norm.weight, norm.bias), [features, output])

    assert_same_bits(gradients)


@pytest.mark.needs_native
@pytest.mark.parametrize("share", [0.0, SHARE])
def test_gradients_are_differentiable(share: float) -> None:
    saved, norm = stays(6, 5, 7, share), layer(7)
    features, output = torch.randn(5, 7, requires_grad=True), torch.randn(5, 7, requires_grad=True)

    def second(tensor: Tensor, normalised: Tensor) -> tuple[Tensor, ...]:
        inputs = (features, output, norm.weight, norm.bias)
        first = torch.autograd.grad((tensor.sin() + normalised.sin()).sum(), inputs, create_graph=True)
        return first + torch.autograd.grad(sum(item.square().sum() for item in first), inputs)

    torch.manual_seed(6)
    actual = second(*add_layer_norm(features, output, norm, share, torch.float32))
    joint = features + output * saved / (1 - share)
    torch.testing.assert_close(actual, second(joint, norm(joint)), atol=1e-4, rtol=1e-4)


@pytest.mark.needs_native
@pytest.mark.parametrize("index", [0, 1])
def test_many_gradients_at_once(index: int) -> None:
    torch.manual_seed(8)
    features, output = (torch.randn(3, 5, 16, requires_grad=True) for _ in range(2))
    norm = layer(16)
    result = add_layer_norm(features, output, norm, SHARE, torch.float32)[index]
    leaves, slopes = [features, output, *(norm.parameters() if index else ())], torch.randn(7, 3, 5, 16)
    gradients_of = partial(torch.autograd.grad, result, leaves, retain_graph=True)
    expected = [torch.stack(parts) for parts in zip(*map(gradients_of, slopes), strict=True)]
    for gradients in (torch.vmap(gradients_of)(slopes), gradients_of(slopes, is_grads_batched=True)):
        torch.testing.assert_close(list(gradients), expected, rtol=1e-4, atol=1e-5)


def test_neither_features_nor_gradients_need_be_contiguous() -> None:
    norm, features, output = layer(7), torch.randn(7, 5, requires_grad=True), torch.randn(7, 5, requires_grad=True)
    for added in (output, None):
        inputs = (features, norm.weight) if added is None else (features, norm.weight, output)
        joint = features.mT if added is None else features.mT + output.mT
        plain = joint.sum() + norm(joint).mT.square().sum()
        total, normalised = add_layer_norm(features.mT, None if added is None else output.mT, norm, 0.0, torch.float32)
        actual = total.sum() + normalised.mT.square().sum()
        result, expected = (torch.autograd.grad(module, inputs, create_graph=True) for module in (actual, plain))
        torch.testing.assert_close(result, expected, atol=1e-4, rtol=1e-4)
        result, expected = (
            torch.autograd.grad(sum(tensor.square().sum() for tensor in several), inputs)
            for several in (result, expected)
        )
        torch.testing.assert_close(result, expected, atol=1e-3, rtol=1e-4)


def test_compiles_in_training() -> None:
    norm, features, output = layer(7), torch.randn(3, 7, requires_grad=True), torch.randn(3, 7)
    compiled = torch.compile(add_layer_norm, backend="eager", fullgraph=True)
    result = compiled(features, output, norm, 0.0, torch.float32)
    torch.testing.assert_close(result[1], norm(features + output))


def test_nothing_to_do() -> None:
    joint, normalised = add_layer_norm(torch.zeros(0, 7), torch.zeros(0, 7), layer(7), SHARE, torch.float32)
    assert joint.shape == normalised.shape == (0, 7)
