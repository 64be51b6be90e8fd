"""What leads to the kernels: which calls they serve, and that they are the formula through `attend`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention import attend
from attent.attention.masks import Causal, Documents, Prefix
from attent.attention.scores import Additive
from attent.ops import tanh_score as eager
from attent.ops.eligibility import can_run_triton

CASES: dict[str, dict[str, Any]] = {
    "behind a cache": {"mask": "causal", "query_start": torch.tensor([3, -2])},
    "lengths": {"lengths": torch.tensor([13, 4])},
    "gaps": {"mask": Causal() | Prefix(4)},
    "documents": {"mask": Documents(torch.tensor([[0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3]]))},
    "bias": {"bias": torch.linspace(-2, 1, 13)[None]},
    "dropout": {"dropout": 0.3, "seed": 5},
}


def on(device: torch.device, case: dict[str, Any]) -> dict[str, Any]:
    def move(part: Any) -> Any:
        if isinstance(part, Tensor):
            return part.to(device)
        for name, tensor in vars(part).items() if hasattr(part, "__dict__") else ():
            object.__setattr__(part, name, move(tensor))
        return part

    return {name: move(part) for name, part in case.items()}


def outcome(
    device: torch.device, dtype: torch.dtype, score: Any, case: dict[str, Any], implementation: str
) -> list[Tensor]:
    torch.manual_seed(7)
    shapes = (2, 2, 11, 5), (2, 1, 13, 5), (2, 1, 13, 5)
    tensors = [torch.randn(shape).to(device, dtype).requires_grad_() for shape in shapes]
    score = score.to(device, dtype)
    context = attend(*tensors, score=score, **on(device, case), implementation=implementation)
    return [context.detach(), *torch.autograd.grad(context.square().sum(), [*tensors, *score.parameters()])]


def no_tiles(*arguments: Any) -> Tensor:
    raise AssertionError("tiles were asked")


def assert_formula(device: torch.device, score: Any, case: dict[str, Any], forbid: Callable[[], None]) -> None:
    exact, plain = (outcome(device, dtype, score, case, "reference") for dtype in (torch.float64, torch.float32))
    forbid()
    for actual, baseline, right in zip(outcome(device, torch.float32, score, case, "tanh"), plain, exact, strict=True):
        assert (actual - right).abs().max() <= 3 * (baseline - right).abs().max() + 2e-6 * right.abs().max() + 1e-6


@pytest.mark.no_cover
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_tiles_whose_scores_are_the_kernels_are_the_formula(
    device: torch.device, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_formula(device, Additive(5, 5, 7), case, lambda: monkeypatch.setattr(eager, "scores", no_tiles))


def test_keys_that_nobody_sees_may_hold_anything(device: torch.device) -> None:
    score = Additive(5, 5, 7).to(device)
    results = []
    for hidden in (0.0, float("nan")):
        torch.manual_seed(3)
        query, key, value = (torch.randn(2, 1, length, 5, device=device) for length in (11, 13, 13))
        key[0, :, 9:], value[0, :, 9:] = hidden, hidden
        inputs = [query.requires_grad_(), key.requires_grad_(), value.requires_grad_()]
        context = attend(*inputs, score=score, lengths=torch.tensor([9, 13], device=device), implementation="tanh")
        results.append([context.detach(), *torch.autograd.grad(context.square().sum(), [*inputs, *score.parameters()])])
    for clean, soiled in zip(*results, strict=True):
        assert clean.isfinite().all()
        assert torch.equal(clean, soiled)


def test_compiled_graphs_hold_it_whole(device: torch.device) -> None:
    score = Additive(4, 4, 6).to(device)
    inputs = [torch.randn(2, 1, length, 4, device=device, requires_grad=True) for length in (3, 5, 5)]

    def loss(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, score=score, mask="causal", implementation="tanh").square().sum()

    ways = (torch.compile(loss, fullgraph=True, backend="aot_eager"), loss)
    actual, expected = (torch.autograd.grad(way(*inputs), (*inputs, *score.parameters())) for way in ways)
    torch.testing.assert_close(actual, expected)


def test_devices_and_types() -> None:
    assert not can_run_triton(torch.device("cpu"), torch.float32)
    assert not can_run_triton(torch.device("cuda"), torch.float64)


@pytest.mark.slow
def test_triton_is_not_imported_for_a_cpu() -> None:
    code = (
        "import sys, torch; from attent.attention import attend; from attent.attention.scores import Additive;"
        "q = torch.randn(1, 1, 3, 4, requires_grad=True); attend(q, q, q, score=Additive(4, 4, 4)).sum().backward();"
        "assert 'attent.ops.tanh_score.triton.tiles' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
