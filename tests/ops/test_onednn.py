from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.ops import onednn
from attent.ops.linear import feed_forward, linear, project
from attent.ops.linear_cross_entropy import linear_cross_entropy
from attent.ops.onednn import can_use_onednn, is_faster, mm, multiply, weight_gradient

pytestmark = pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this PyTorch was built without oneDNN"
)


@pytest.fixture(autouse=True)
def on_amd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "prefers_onednn", lambda: True)


def operands(*shape: int, columns: int, has_bias: bool = True) -> list[Tensor]:
    tensors = [torch.randn(shape), torch.randn(columns, shape[-1]), *([torch.randn(columns)] if has_bias else [])]
    return [tensor.requires_grad_() for tensor in tensors]


def error(actual: Tensor, exact: Tensor) -> float:
    return ((actual - exact).abs().max() / exact.abs().max()).item()


def assert_equal(function: str, actual: Tensor, right: Tensor, inputs: list[Tensor], slope: Tensor) -> None:
    assert function in type(actual.grad_fn).__name__
    assert error(actual, right) < 1e-5
    gradients = (torch.autograd.grad(output, inputs, slope) for output in (actual, right))
    for result, expected in zip(*gradients, strict=True):
        assert result.is_contiguous()
        assert error(result, expected) < 1e-5


def second_derivatives(output: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    first = torch.autograd.grad(output.sum(), inputs, create_graph=True)
    return torch.autograd.grad(sum(gradient.square().sum() for gradient in first), inputs)


def onednn_calls(run: Callable[[], object]) -> int:
    with torch.profiler.profile() as profile:
        run()
    return sum(event.count for event in profile.key_averages() if event.key == "mkldnn::_linear_pointwise")


@pytest.mark.parametrize(
    ("shape", "columns", "has_bias"),
    [((64,), 32, True), ((1, 1), 1, False), ((5, 7), 11, True), ((3, 41, 96), 33, False), ((2, 1031, 64), 256, True)],
)
def test_value_and_gradients_are_those_of_pytorch(shape: tuple[int, ...], columns: int, has_bias: bool) -> None:
    inputs = operands(*shape, columns=columns, has_bias=has_bias)
    slope = torch.randn(*shape[:-1], columns)
    weight, bias = inputs[1], inputs[2] if has_bias else None
    actual, right = linear(inputs[0], weight, bias), F.linear(inputs[0], weight, bias)
    assert_equal("OnednnLinear", actual, right, inputs, slope)


@pytest.mark.parametrize(
    ("shape", "hidden", "has_bias"), [((64,), 32, True), ((5, 7), 11, False), ((3, 41, 96), 33, True)]
)
def test_a_feed_forward_network_is_that_of_pytorch(shape: tuple[int, ...], hidden: int, has_bias: bool) -> None:
    widen, narrow = nn.Linear(shape[-1], hidden, bias=has_bias), nn.Linear(hidden, 13, bias=has_bias)
    features, slope = torch.randn(shape, requires_grad=True), torch.randn(*shape[:-1], 13)
    inputs = [features, *widen.parameters(), *narrow.parameters()]
    actual, right = feed_forward(features, widen, narrow, F.relu), narrow(F.relu(widen(features)))
    assert_equal("OnednnFeedForward", actual, right, inputs, slope)


def test_a_feed_forward_network_is_differentiated_twice() -> None:
    widen, narrow = nn.Linear(4, 5), nn.Linear(5, 3)
    exact_widen, exact_narrow = (copy.deepcopy(layer).double() for layer in (widen, narrow))
    features = torch.randn(7, 4, requires_grad=True)
    exact = features.detach().double().requires_grad_()
    inputs = [features, widen.weight, narrow.weight, widen.bias]
    actual = second_derivatives(feed_forward(features, widen, narrow, F.relu).sin(), inputs)
    inputs = [exact, exact_widen.weight, exact_narrow.weight, exact_widen.bias]
    reference = second_derivatives(exact_narrow(F.relu(exact_widen(exact))).sin(), inputs)
    for result, right in zip(actual, reference, strict=True):
        assert error(result.double(), right) < 1e-5


def test_frozen_parts_of_a_feed_forward_network_get_no_gradient() -> None:
    widen, narrow = nn.Linear(6, 5), nn.Linear(5, 3)
    widen.weight.requires_grad_(False)
    narrow.bias.requires_grad_(False)
    feed_forward(torch.randn(7, 6), widen, narrow, F.relu).sum().backward()
    assert widen.weight.grad is narrow.bias.grad is None
    assert widen.bias.grad is not None and narrow.weight.grad is not None
    narrow.register_forward_hook(lambda module, inputs, output: output.neg())
    assert onednn_calls(lambda: feed_forward(torch.randn(7, 6), widen, narrow, F.relu)) == 1


def test_operands_may_lie_in_any_order() -> None:
    features, weight = torch.randn(5, 3, 7).transpose(0, 1), torch.randn(11, 20)[:, 3:10]
    for left, right in ((features, weight), (features.transpose(0, 1), weight.T.contiguous().T)):
        assert error(multiply(left, right), F.linear(left, right)) < 1e-5
    doutput = torch.randn(3, 11).expand(5, 3, 11).transpose(0, 1)
    assert error(weight_gradient(doutput, features), doutput.flatten(0, 1).T @ features.flatten(0, 1)) < 1e-5


def test_slices_of_a_weight_are_multiplied_as_fast() -> None:
    features, weight = torch.randn(180, 512), torch.randn(768, 768)

    def seconds(part: Tensor) -> float:
        begin = time.process_time()
        multiply(features, part)
        return time.process_time() - begin

    whole = weight[:, 256:].contiguous()
    assert min(seconds(weight[:, 256:]) for _ in range(3)) < 30 * min(seconds(whole) for _ in range(3)) + 0.01


def test_products_of_matrices_are_those_of_pytorch() -> None:
    left, right, out = torch.randn(33, 64), torch.randn(64, 17), torch.empty(33, 17)
    assert mm(left, right, out=out) is out
    assert error(out, left @ right) < 1e-5
    assert torch.equal(mm(left[:0], right), torch.empty(0, 17))
    assert torch.equal(mm(left.bfloat16(), right.bfloat16()), left.bfloat16() @ right.bfloat16())
    assert not onednn_calls(lambda: mm(left.double(), right.double()))


@pytest.mark.filterwarnings("ignore:Input #")
def test_derivatives_pass_finite_differences() -> None:
    inputs = operands(3, 4, columns=2)
    assert torch.autograd.gradcheck(linear, inputs, eps=1e-2, atol=1e-2, rtol=1e-2)
    assert torch.autograd.gradgradcheck(linear, inputs, eps=1e-2, atol=1e-2, rtol=1e-2)


def test_training_layers_use_it_and_evaluation_does_not() -> None:
    layers, features = [nn.Linear(32, width) for width in (64, 32)], torch.randn(9, 32)
    assert onednn_calls(lambda: sum(tensor.sum() for tensor in project(features, *layers)).backward()) == 4
    layers[0].register_forward_hook(lambda module, inputs, output: output.neg())
    assert torch.equal(project(features, *layers)[0], layers[0](features))
    assert onednn_calls(lambda: project(features, *layers)) == 1
    assert onednn_calls(lambda: project(features, layers[1].eval())) == 0


def test_the_loss_of_the_output_layer_uses_it() -> None:
    features, weight, bias = operands(601, 32, columns=999)
    target = torch.randint(999, (601,))

    def gradients() -> list[Tensor]:
        loss = linear_cross_entropy(features, weight, bias, target, 0.1)
        return [loss, *torch.autograd.grad(loss, [features, weight, bias])]

    assert onednn_calls(gradients)
    actual = gradients()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onednn, "prefers_onednn", lambda: False)
        assert not onednn_calls(gradients)
        for result, expected in zip(actual, gradients(), strict=True):
            assert error(result, expected) < 1e-5
    with torch.no_grad():
        assert not onednn_calls(lambda: linear_cross_entropy(features, weight, bias, target, 0.1))


@pytest.mark.parametrize(
    "way", ["no gradients", "autocast", "float64", "empty", "subclass", "other machine", "switched off", "meta"]
)
def test_elsewhere_pytorch_computes(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    features, weight, bias = operands(0 if way == "empty" else 5, 4, columns=3)
    if way in ("float64", "meta"):
        kind = torch.float64 if way == "float64" else torch.device("meta")
        features, weight, bias = (tensor.to(kind) for tensor in (features, weight, bias))
    if way == "subclass":
        features = features.as_subclass(type("Marked", (Tensor,), {}))
    if way == "other machine":
        monkeypatch.setattr(onednn, "prefers_onednn", lambda: False)
    if way == "switched off":
        monkeypatch.setattr(type(torch.backends.mkldnn), "enabled", False)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast")
    with torch.set_grad_enabled(way != "no gradients"), autocast:
        assert not can_use_onednn(features, weight, bias)
        actual, right = linear(features, weight, bias), F.linear(features, weight, bias)
    assert actual.dtype == right.dtype and actual.shape == right.shape
    assert way == "meta" or torch.equal(actual, right)


@pytest.mark.filterwarnings("ignore:.torch.jit")  # PyTorch's own forward mode
def test_transforms_and_compilers_see_pytorch() -> None:
    features, weight, bias = operands(5, 4, columns=3)
    rows = torch.func.vmap(lambda row: linear(row, weight, bias))(features)
    assert torch.equal(rows, torch.func.vmap(lambda row: F.linear(row, weight, bias))(features))
    tangent = torch.func.jvp(lambda tensor: linear(tensor, weight, bias), (features,), (torch.ones_like(features),))[1]
    torch.testing.assert_close(tangent, weight.sum(1).expand(5, 3))
    compiled = torch.compile(linear, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(features, weight, bias), F.linear(features, weight, bias))
    slopes = torch.randn(2, 5, 3)
    (batched,) = torch.autograd.grad(linear(features, weight, bias), features, slopes, is_grads_batched=True)
    torch.testing.assert_close(batched, slopes @ weight)


@pytest.mark.parametrize(
    ("processor", "capability", "prefers"),
    [("AuthenticAMD", "AVX512", True), ("AuthenticAMD", "AVX2", False), ("GenuineIntel", "AVX512", False)],
)
def test_the_choice_follows_the_processor(
    processor: str, capability: str, prefers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr("attent.system.IS_LINUX", True)
    monkeypatch.setattr(Path, "read_text", lambda path, encoding: f"vendor_id\t: {processor}\n")
    assert is_faster.__wrapped__() == prefers
