from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import attent
from attent.integrations import flex_attention as module
from attent.integrations.score_mod import OffsetBias, parts_of, trace
from attent.testing import check_part

H, T = 3, 7
INFINITY = float("inf")
SLOPES = torch.linspace(0.1, 1.0, H, requires_grad=True)
TABLE, LIST = torch.randn(H, 2 * T), torch.randn(11)
CAP, HIDDEN = torch.tensor(20.0), torch.tensor(-INFINITY)


def in_steps(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    distance = j - i
    far = (distance.abs() > 3) | (i < j)
    return (30 * torch.tanh(s / 30) + TABLE[h, distance + T] - SLOPES[h] * distance).masked_fill(far, -INFINITY)


CERTAIN: dict[str, tuple[Callable[..., Tensor], float | None]] = {
    "identity": (lambda s, b, h, i, j: s, None),
    "ALiBi": (lambda s, b, h, i, j: s + SLOPES[h] * (j - i), None),
    "a table by offset": (lambda s, b, h, i, j: s + TABLE[h, i - j + T], None),
    "constants in between": (lambda s, b, h, i, j: TABLE[h, (i + T) - j] + s, None),
    "an offset by coefficients": (lambda s, b, h, i, j: s - ((i + i) - (j + j)).abs(), None),
    "of the head alone": (lambda s, b, h, i, j: s - SLOPES[h], None),
    "soft cap": (lambda s, b, h, i, j: 20 * torch.tanh(s / 20), 20.0),
    "soft cap and a term": (lambda s, b, h, i, j: torch.tanh(s / 1.5) * 1.5 + (j - i), 1.5),
    "causal": (lambda s, b, h, i, j: torch.where(i >= j, s, -INFINITY), None),
    "hidden first": (lambda s, b, h, i, j: torch.where((i < j) | (i > j + 3), -INFINITY, s), None),
    "a captured infinity": (lambda s, b, h, i, j: torch.where(i >= j, s, HIDDEN), None),
    "a table of 64 bits": (lambda s, b, h, i, j: s + TABLE.double()[h, i - j + T], None),
    "in steps": (in_steps, 30.0),
}


def in_place(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    score = s.clone()
    score += 1
    return score


def without_gradient(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    with torch.no_grad():
        return s + 1


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, score: Tensor) -> Tensor:
        return 20 * torch.tanh(score / 20)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient


UNCERTAIN: dict[str, Callable[..., Any]] = {
    "of the key": lambda s, b, h, i, j: s + LIST[j % 7],
    "of the query": lambda s, b, h, i, j: s + LIST[i],
    "of the sequence": lambda s, b, h, i, j: s + LIST[b],
    "twice the query less the key": lambda s, b, h, i, j: s + (i * 2 - j),
    "query twice": lambda s, b, h, i, j: s + (i + i - j),
    "query and key": lambda s, b, h, i, j: s + (i + j),
    "by blocks": lambda s, b, h, i, j: torch.where(i // 2 >= j // 2, s, -INFINITY),
    "a comparison of one index": lambda s, b, h, i, j: torch.where((i >= j) | (j < 3), s, -INFINITY),
    "indices as floats": lambda s, b, h, i, j: s + (i.float() - j.float()),
    "squared": lambda s, b, h, i, j: s * s,
    "doubled": lambda s, b, h, i, j: s + s,
    "scaled": lambda s, b, h, i, j: s * 2,
    "scaled by head": lambda s, b, h, i, j: s * SLOPES[h],
    "scaled by a sum": lambda s, b, h, i, j: torch.add(TABLE[0, 0], s, alpha=2),
    "negative": lambda s, b, h, i, j: SLOPES[h] - s,
    "without the score": lambda s, b, h, i, j: TABLE[h, i - j + T],
    "by the score": lambda s, b, h, i, j: torch.where(s > 0, s, -INFINITY),
    "hidden by a large number": lambda s, b, h, i, j: torch.where(i >= j, s, -1e9),
    "a table in its place": lambda s, b, h, i, j: torch.where(i >= j, s, TABLE[h, i - j + T].log()),
    "a tensor as the cap": lambda s, b, h, i, j: CAP * torch.tanh(s / CAP),
    "two caps": lambda s, b, h, i, j: 30 * torch.tanh(s / 20),
    "a cap at the end": lambda s, b, h, i, j: 20 * torch.tanh((s + (j - i)) / 20),
    "in place": in_place,
    "no gradient": without_gradient,
    "a gradient of its own": lambda s, b, h, i, j: Straight.apply(s),
    "a branch": lambda s, b, h, i, j: s + 1 if s > 0 else s,
    "a branch by offset": lambda s, b, h, i, j: s + 1 if i >= j else s,
    "a number read": lambda s, b, h, i, j: s + float(s),
    "detached": lambda s, b, h, i, j: s + s.detach(),
    "data of the score": lambda s, b, h, i, j: s + s.data,
    "data of an index": lambda s, b, h, i, j: s + LIST[i.data],
    "random": lambda s, b, h, i, j: s + torch.rand(()),
    "a row": lambda s, b, h, i, j: s + LIST,
    "no tensor": lambda s, b, h, i, j: 3.0,
    "an error": lambda s, b, h, i, j: s + TABLE[h, i, j],
}


@pytest.mark.parametrize("name", CERTAIN)
def test_a_term_by_head_and_offset_is_recognized(name: str) -> None:
    score_mod, soft_cap = CERTAIN[name]
    score = trace(score_mod, torch.float32)
    assert score is not None
    assert score.soft_cap == soft_cap
    with torch.no_grad():
        assert trace(score_mod, torch.float32) == score


@pytest.mark.parametrize("name", UNCERTAIN)
def test_anything_else_is_not(name: str) -> None:
    assert trace(UNCERTAIN[name], torch.float32) is None


def test_a_compiled_function_is_looked_into() -> None:
    compiled: Any = torch.compile(lambda j: LIST[j % 7], backend="eager")
    assert trace(lambda s, b, h, i, j: s + compiled(j), torch.float32) is None


def test_its_state_is_read_anew() -> None:
    settings = {"cap": 2.0}
    capped: Callable[..., Tensor] = lambda s, b, h, i, j: settings["cap"] * torch.tanh(s / settings["cap"])  # noqa: E731
    caps = []
    for settings["cap"] in (2.0, 3.0):
        score = trace(capped, torch.float32)
        caps.append(None if score is None else score.soft_cap)
    assert caps == [2.0, 3.0]


B, H, TQ, TK, D = 2, 3, 13, 19, 4


def mods(table: Tensor) -> dict[str, Callable[..., Tensor]]:
    table = table.to(torch.float64)
    return {
        "relative bias": lambda s, b, h, i, j: s + table[h, j - i + TQ],
        "of the head": lambda s, b, h, i, j: s + table[h, 0 * (j - i)],
        "soft cap": lambda s, b, h, i, j: 2 * torch.tanh(s / 2),
        "soft cap, bias and causal": lambda s, b, h, i, j: torch.where(
            i >= j, 2 * torch.tanh(s / 2) + table[h, j - i + TQ], -INFINITY
        ),
        "window": lambda s, b, h, i, j: torch.where((i - j < 5) & (j - i < 2), s - (i - j).abs(), -INFINITY),
        "window by head": lambda s, b, h, i, j: torch.where((i - j).abs() <= h, s, -INFINITY),
        "no key": lambda s, b, h, i, j: torch.where(i - j > 2 * TQ, s, -INFINITY),
    }


@pytest.mark.parametrize(
    ("name", "is_causal", "dtype"),
    [
        *((name, place % 2 == 0, torch.float32) for place, name in enumerate(mods(torch.zeros(1)))),
        ("soft cap, bias and causal", False, torch.float64),
        ("window", True, torch.float64),
    ],
)
def test_it_computes_what_the_function_does(
    name: str, is_causal: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    table = torch.randn(H, TQ + TK, requires_grad=True)
    tensors = [torch.randn(B, H, size, D, dtype=dtype, requires_grad=True) for size in (TQ, TK, TK)]
    blocks = attent.create_block_mask(lambda b, h, i, j: i + 4 >= j, None, None, TQ, TK, BLOCK_SIZE=4)
    blocks, score_mod = blocks if is_causal else None, mods(table)[name]
    assert parts_of(score_mod, H, TQ, TK, dtype) is not None
    results: list[tuple[Tensor, ...]] = []
    for parts in (parts_of, lambda *arguments: None):
        monkeypatch.setattr(module, "parts_of", parts)
        context, lse = attent.flex_attention(*tensors, score_mod, blocks, return_lse=True)
        loss = context.sin().sum() + lse.masked_fill(lse.isinf(), 0.0).cos().sum()
        gradients = torch.autograd.grad(loss, [*tensors, table], materialize_grads=True)
        with torch.no_grad():
            torch.testing.assert_close(attent.flex_attention(*tensors, score_mod, blocks), context)
        results.append((context, lse, *gradients))
    tolerance: Any = {"atol": 2e-5, "rtol": 1e-4} if dtype == torch.float32 else {}
    for mine, right in zip(*results, strict=True):
        torch.testing.assert_close(mine, right, **tolerance)


def test_a_function_is_left_as_it_is() -> None:
    table = torch.randn(H, TQ + TK)
    for score_mod in (
        lambda s, b, h, i, j: torch.where((i - j) % 3 == 0, s, -INFINITY),
        lambda s, b, h, i, j: s + table[h, j - i + TQ] / 0,
        lambda s, b, h, i, j: s + table[h, j],
    ):
        assert parts_of(score_mod, H, TQ, TK, torch.float32) is None


def test_a_bias_that_is_the_same_for_all_heads_is_one_row() -> None:
    parts = parts_of(lambda s, b, h, i, j: s - (i - j).abs(), H, TQ, TK, torch.float32)
    assert parts is not None and parts.position is not None
    assert parts.position.vector.shape == (1, TQ + TK - 1)
    assert parts.soft_cap is parts.mask is None


def test_it_is_a_position_as_the_others() -> None:
    check_part(OffsetBias(torch.randn(1, 2001, dtype=torch.float64), 1001))
    offsets = torch.arange(1 - TQ, TK)
    torch.testing.assert_close(OffsetBias(offsets[None].float(), TQ).bias_by_offset(offsets)[0], offsets.float())
