from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from attent.layers.recurrent import BidirectionalRecurrent, Recurrent, RecurrentState
from attent.ops import native, rnn

pytestmark = pytest.mark.needs_native
LENGTHS = torch.tensor([4, 11, 0, 1, 7])


def error(actual: Tensor, exact: Tensor) -> float:
    return ((actual.double() - exact).norm() / exact.norm()).item()


@contextmanager
def without_onednn() -> Iterator[None]:
    """Let PyTorch compute by itself: oneDNN has no LSTM in bfloat16 for processors without AVX-512."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def states(cell: str, width: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(3)
    return [torch.randn(5, width).to(dtype).requires_grad_() for _ in range(2 if cell == "lstm" else 1)]


def layer_and_gradients(layer: Recurrent, inputs: Tensor, upstream: list[Tensor], cell: str) -> list[Tensor]:
    """Outputs, last state, and the gradients of everything."""
    first = states(cell, 7, inputs.dtype)
    outputs, last = layer(inputs, RecurrentState(*first))
    result = [outputs, last.hidden, *([] if last.cell is None else [last.cell])]
    leaves = [inputs, *first, *layer.parameters()]
    return [*result, *torch.autograd.grad(result, leaves, [tensor.to(inputs.dtype) for tensor in upstream])]


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_layer_agrees_with_pytorchs_in_float64(cell: str, half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, inputs = Recurrent(cell, 3, 7), torch.randn(5, 11, 3)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    expected = [torch.randn(5, 11, 7), *(torch.randn(5, 7) for _ in states(cell, 7))]
    exact = layer_and_gradients(copy.deepcopy(layer).double(), inputs.double().requires_grad_(), expected, cell)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        actual = layer_and_gradients(layer, inputs.requires_grad_(), expected, cell)
        monkeypatch.setattr(rnn, "can_run_native", lambda *tensors, **options: False)
        with without_onednn():
            plain = layer_and_gradients(layer, inputs, expected, cell)
    assert all(tensor.dtype == torch.float32 for tensor in actual)
    for result, baseline, right in zip(actual, plain, exact, strict=True):
        assert error(result, right) < max(3 * error(baseline, right), 0.05 if half else 5e-6)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_reader_of_both_ends_agrees_with_that_of_turned_rows(
    cell: str, half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = BidirectionalRecurrent(cell, 3, 7, layers=2, dropout=0.3)
    features, upstream = torch.randn(5, 11, 3), torch.randn(5, 11, 14)

    def read() -> list[Tensor]:
        torch.manual_seed(5)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            result = reader(features.requires_grad_(), LENGTHS)
        return [result, *torch.autograd.grad(result, [features, *reader.parameters()], upstream)]

    actual = read()
    monkeypatch.setattr(rnn, "can_run_native", lambda *tensors, **options: False)
    with without_onednn():
        reference = read()
    assert not actual[0][LENGTHS[:, None] <= torch.arange(11)].any()
    for first, second in zip(actual, reference, strict=True):
        assert error(first, second.double()) < (0.05 if half else 5e-6)


def test_steps_are_taken_by_the_extension_in_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(
        native, "run", lambda name, *arguments, run=native.run: (called.append(name), run(name, *arguments))
    )
    reader, features = BidirectionalRecurrent("gru", 3, 7), torch.randn(5, 11, 3)
    reader(features, LENGTHS)
    assert called == ["attent_rnn_cell"] * 22
    called.clear()
    reader.eval()(features, LENGTHS)
    with torch.no_grad():
        reader.train()(features, LENGTHS)
    reader.double()(features.double(), LENGTHS)
    with torch.autocast("cpu", torch.float16):
        reader.float()(features, LENGTHS)
    assert not called


def test_bits_depend_neither_on_the_threads_nor_on_the_run(assert_same_bits: Callable[..., None]) -> None:
    reader, features = BidirectionalRecurrent("gru", 3, 32), torch.randn(64, 5, 3)
    inputs, weight, bias = torch.randn(5, 64, 96), reader.forwards[0].network.weight_hh_l0, torch.zeros(96)

    def compute() -> tuple[Tensor, ...]:
        layer = rnn.RnnSteps(torch.ones(64, 32), None, 5, torch.float32)
        layer.forward(0, inputs, inputs[1], bias)
        layer.start_backward(torch.ones(64, 32), None)
        slopes = torch.empty_like(inputs)
        layer.backward(0, None, None, slopes, torch.empty_like(inputs))
        return layer.hidden_after[0], slopes[0], layer.dhidden

    assert_same_bits(compute, (1, 2, 5, 5))
    first, second = (torch.autograd.grad(reader(features, torch.full((64,), 5)).sum(), weight)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_large_sums_neither_overflow_nor_hide_what_is_no_number() -> None:
    inputs = torch.tensor([1e4, -1e4, torch.nan]).expand(1, 1, 3).clone()
    outputs, _, _ = rnn.forward_fused(inputs, torch.zeros(3, 1), torch.zeros(3), torch.ones(1, 1), None)
    assert outputs.isnan().all()
    inputs[..., 2] = 1e4
    inputs.requires_grad_()
    outputs, _, _ = rnn.forward_fused(inputs, torch.zeros(3, 1), torch.zeros(3), torch.zeros(1, 1), None)
    assert outputs.item() == 1.0
    assert torch.autograd.grad(outputs.sum(), inputs)[0].flatten().tolist() == pytest.approx([0.0] * 3, abs=1e-30)


def test_an_lstm_runs_under_bfloat16_autocast_on_every_processor() -> None:
    torch.manual_seed(0)
    network = torch.nn.LSTM(5, 7, batch_first=True).eval()
    inputs, hidden, cell = torch.randn(3, 4, 5), torch.randn(3, 7), torch.randn(3, 7)
    expected = rnn.reference(network, inputs, hidden, cell)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        outputs = rnn.reference(network, inputs, hidden, cell)
    for actual, right in zip(outputs, expected, strict=True):
        assert actual is not None and right is not None
        assert error(actual, right.double()) < 0.02
