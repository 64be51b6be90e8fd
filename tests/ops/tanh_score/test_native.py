"""Every way to compute tanh forms: the compiled extension at each width of registers, plain PyTorch, and Triton."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from attent.ops import native
from attent.ops import tanh_score as eager
from attent.ops.tanh_score import operator

COMPILED: Any = SimpleNamespace(scores=operator.native_scores, gradients=operator.native_gradients)
WAYS = [pytest.param(level, id=f"extension-{level}", marks=pytest.mark.needs_native) for level in (0, 1, 2)]
WAYS.append(pytest.param(None, id="eager"))
# Triton interprets in Python, and its kernels are not among what coverage counts.
TRITON = pytest.param("triton", marks=pytest.mark.no_cover)
by_every_way = pytest.mark.parametrize("way", [*WAYS, TRITON], indirect=True)
# (B, H, heads of v, Tq, Tk, D)
SHAPES = [
    (1, 1, 1, 1, 1, 1),
    (2, 3, 3, 5, 7, 11),
    (2, 3, 1, 67, 37, 17),
    (1, 2, 2, 131, 300, 33),
    (1, 1, 1, 3, 129, 64),
    (1, 1, 1, 530, 3, 5),
]


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param is None:
        return eager
    if request.param == "triton":
        return on_device(request.getfixturevalue("device"))
    if request.param > native.simd_level():
        pytest.skip("this processor has no such registers")
    monkeypatch.setattr(native, "simd_level", lambda: request.param)
    return COMPILED


def on_device(device: torch.device) -> Any:
    from attent.ops.tanh_score.triton import tiles

    def gradients(*inputs: Tensor) -> list[Tensor]:
        return [gradient.cpu() for gradient in tiles.gradients(*(tensor.to(device) for tensor in inputs))]

    return SimpleNamespace(
        scores=lambda *inputs: tiles.scores(*(tensor.to(device) for tensor in inputs)).cpu(), gradients=gradients
    )


def sides(shape: tuple[int, ...], size: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, heads, directions, queries, keys, width = shape
    query, key = torch.randn(batch, heads, queries, width) * size, torch.randn(batch, heads, keys, width) * size
    return query, key, torch.randn(directions, width), torch.randn(batch, heads, queries, keys)


def plain(query: Tensor, key: Tensor, v: Tensor) -> Tensor:
    return (torch.tanh(query[..., :, None, :] + key[..., None, :, :]) * v[:, None, None]).sum(-1)


def outcome(scores: Callable[[Tensor, Tensor, Tensor], Tensor], sides: tuple[Tensor, ...]) -> list[Tensor]:
    *inputs, gradient = (tensor.detach().requires_grad_() for tensor in sides)
    result = scores(*inputs)
    return [result.detach(), *torch.autograd.grad(result, inputs, gradient)]


def error(actual: list[Tensor], exact: list[Tensor]) -> list[Tensor]:
    return [(result.double() - expected).abs() for result, expected in zip(actual, exact, strict=True)]


def scales(query: Tensor, key: Tensor, v: Tensor, gradient: Tensor) -> list[Tensor]:
    """What the terms of each result sum to without their signs, a tanh and its slope being at most 1."""
    v, gradient = v.abs()[:, None], gradient.abs()
    per_key, per_query = gradient.sum(-2)[..., None] * v, gradient.sum(-1)[..., None] * v
    return [v.sum(-1, keepdim=True), per_query, per_key, gradient.sum().reshape(1, 1)]


def exactly(inputs: tuple[Tensor, ...]) -> list[Tensor]:
    return outcome(plain, tuple(tensor.double() for tensor in inputs))


def of_way(way: Any, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    return [way.scores(*inputs[:3]), *way.gradients(*inputs)]


def assert_formula(way: Any, shape: tuple[int, ...], size: float) -> None:
    inputs = sides(shape, size)
    exact = exactly(inputs)
    deviation, plains = error(of_way(way, inputs), exact), error(outcome(plain, inputs), exact)
    for actual, expected, scale in zip(deviation, plains, scales(*inputs), strict=True):
        assert (actual <= 3 * expected.max() + 5e-7 * scale).all()


@pytest.mark.parametrize("way", WAYS, indirect=True)
@pytest.mark.parametrize(
    ("shape", "size"),
    [*((SHAPES[1], size) for size in (1e-3, 1.0, 2.0, 4.0, 8.0, 30.0, 1e3)), *((shape, 2.0) for shape in SHAPES)],
    ids=str,
)
def test_scores_and_gradients_are_those_of_the_formula(way: Any, shape: tuple[int, ...], size: float) -> None:
    assert_formula(way, shape, size)


@pytest.mark.parametrize("way", [TRITON], indirect=True)
@pytest.mark.parametrize(
    ("shape", "size"), [(SHAPES[0], 1.0), (SHAPES[1], 1e-3), (SHAPES[1], 1e3), ((1, 2, 1, 19, 21, 19), 8.0)], ids=str
)
def test_scores_and_gradients_of_triton_are_those_of_the_formula(way: Any, shape: tuple[int, ...], size: float) -> None:
    assert_formula(way, shape, size)


@pytest.mark.no_cover
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_triton_sums_16_bits_in_32_and_always_in_one_order(device: torch.device, dtype: torch.dtype) -> None:
    way, inputs = on_device(device), tuple(tensor.to(dtype) for tensor in sides((1, 2, 1, 5, 7, 6)))
    for actual, again, right in zip(of_way(way, inputs), of_way(way, inputs), exactly(inputs), strict=True):
        assert actual.dtype == dtype
        assert torch.equal(actual, again)
        assert (actual - right).abs().max() <= torch.finfo(dtype).eps * right.abs().max()


@pytest.mark.no_cover
def test_triton_is_told_of_wide_numbers_and_keeps_them_finite(device: torch.device) -> None:
    from attent.ops.tanh_score.triton import tiles

    features = torch.zeros(1, 2, 3, 5, device=device)
    features[0, 1, 2, 3], features[0, 0, 1, 0], features[0, 0, 0, 0] = 1e3, float("nan"), tiles.WIDE
    laid = tiles.kernel_operand(features, 0.5)
    assert laid.narrow.tolist() == [[1, 0, 1], [1, 1, 0]]
    assert laid.powers[1].isfinite().all()
    assert laid.transposed.shape == (2, 6, 3)
    assert not laid.transposed[:, 5].any()
    # a pair of them multiplied is finite too
    assert (0.5 * torch.tensor(4 * tiles.WIDE).exp() + 0.5).square().isfinite()
    assert [tiles.power_of_two(size, 16, 64) for size in (1, 16, 17, 64, 65, 0)] == [16, 16, 32, 64, 64, 16]


@pytest.mark.parametrize(("chunk", "size"), [(1, 1.0), (300, 50.0), (800, 1.0)])
def test_the_number_of_eager_rows_at_a_time_does_not_matter(
    chunk: int, size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = tuple(tensor.double() for tensor in sides((2, 3, 3, 11, 13, 5), size))
    expected = of_way(eager, inputs)
    monkeypatch.setattr(eager, "CHUNK", chunk)
    torch.testing.assert_close(of_way(eager, inputs), expected)


def test_eager_holds_no_more_than_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, *_ = sides((1, 2, 1, 64, 32, 8))
    monkeypatch.setattr(eager, "CHUNK", 4 * key.numel())
    observed = {(rows.stop - rows.start, rest.untyped_storage().data_ptr()) for rows, rest in eager._rests(query, key)}
    assert len(observed) == 1
    assert observed.pop()[0] == 4


@pytest.mark.parametrize("way", WAYS, indirect=True)
@pytest.mark.parametrize("v", [0.0, 1e-35, 1e-3, 1e35, "some zeros", "of every size"])
def test_v_may_be_of_any_size(way: Any, v: float | str) -> None:
    query, key, directions, gradient = sides((2, 3, 3, 5, 37, 29), 2.0)
    if isinstance(v, float):
        directions = directions * v
    elif v == "some zeros":
        directions[:, ::2] = 0
    else:
        directions = directions * 10.0 ** torch.linspace(-20, 20, 29)
    inputs = query, key, directions, gradient
    for far, scale in zip(error(of_way(way, inputs), exactly(inputs)), scales(*inputs), strict=True):
        assert (far <= 3e-6 * scale).all()


@pytest.mark.parametrize("way", WAYS, indirect=True)
@pytest.mark.parametrize("size", [6.0, 9.5, 12.0, 30.0])
def test_where_tanh_is_one_no_gradient_is_left(way: Any, size: float) -> None:
    query, key, v, gradient = sides((1, 2, 1, 70, 75, 5))
    # 1 − tanh² is far below what a float keeps of tanh
    dq, dk, dv = way.gradients(torch.full_like(query, size), torch.full_like(key, size), v, gradient)
    assert dq.abs().max() <= 1e-6
    assert dk.abs().max() <= 1e-6
    torch.testing.assert_close(dv, gradient.sum().expand(1, 5))


@pytest.mark.parametrize(
    ("way", "queries"),
    [
        *(pytest.param(*way.values, 130, id=way.id, marks=way.marks) for way in WAYS),
        pytest.param("triton", 19, marks=pytest.mark.no_cover),
    ],
    indirect=["way"],
)
def test_one_wide_number_changes_nothing_elsewhere(way: Any, queries: int) -> None:
    query, key, v, gradient = sides((1, 1, 1, queries, queries + 10, 19))
    query[0, 0, queries // 2, 3], key[0, 0, queries * 2 // 3, 5] = 45.0, -300.0
    inputs = query, key, v, gradient
    for result, expected in zip(of_way(way, inputs), exactly(inputs), strict=True):
        torch.testing.assert_close(result.double(), expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("way", "bad"),
    [
        *(
            pytest.param(*way.values, bad, marks=way.marks)
            for way in WAYS
            for bad in (torch.nan, torch.inf, -torch.inf)
        ),
        *(pytest.param("triton", bad, marks=pytest.mark.no_cover) for bad in (torch.nan, -torch.inf)),
    ],
    indirect=["way"],
)
def test_what_is_not_finite_stays_in_its_row(way: Any, bad: float) -> None:
    query, key, v, gradient = sides((1, 2, 1, 9, 40, 6))
    query[0, 1, 4, 2] = bad
    actual, expected = way.scores(query, key, v), plain(query, key, v)
    torch.testing.assert_close(actual, expected, equal_nan=True, atol=1e-5, rtol=1e-5)
    dq, dk, _ = way.gradients(query, key, v, gradient)
    others = torch.ones(2, 9, dtype=torch.bool)
    others[1, 4] = False
    assert dq[0, others].isfinite().all()
    assert dk[0, 0].isfinite().all()


@pytest.mark.needs_native
@pytest.mark.parametrize("shape", SHAPES[2:], ids=str)
def test_results_do_not_depend_on_the_number_of_threads(
    shape: tuple[int, ...], assert_same_bits: Callable[..., None]
) -> None:
    inputs = sides(shape)
    assert_same_bits(lambda: of_way(COMPILED, inputs), (1, 2, 3))


@pytest.mark.needs_native
def test_threads_of_its_own_serve_where_torchs_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = sides((2, 3, 3, 150, 90, 7))
    expected = of_way(COMPILED, inputs)
    monkeypatch.setattr(native, "gomp_parallel", lambda: None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert all(map(torch.equal, of_way(COMPILED, inputs), expected))


@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_a_row_does_not_depend_on_its_neighbours(way: Any) -> None:
    query, key, v, _ = sides((3, 2, 1, 70, 50, 12))
    whole, single = way.scores(query, key, v), way.scores(query[1:2, :, 13:14], key[1:2], v)
    torch.testing.assert_close(whole[1:2, :, 13:14], single, atol=1e-6, rtol=1e-6)
    if way is COMPILED:
        assert torch.equal(whole[1:2, :, 13:14], single)


@by_every_way
@pytest.mark.parametrize("shape", [(0, 3, 3, 5, 7, 11), (2, 3, 3, 0, 7, 11), (2, 3, 3, 5, 0, 11)], ids=str)
def test_without_pairs_there_is_nothing(way: Any, shape: tuple[int, ...]) -> None:
    inputs = sides(shape)
    assert way.scores(*inputs[:3]).shape == inputs[3].shape
    for gradient, like in zip(way.gradients(*inputs), inputs, strict=False):
        assert gradient.shape == like.shape
        assert not gradient.any()


@by_every_way
def test_any_layout_in_memory_serves(way: Any) -> None:
    query, key, v, gradient = sides((1, 2, 1, 5, 7, 4))
    transposed = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (query, key)]
    scores = way.scores(*transposed, v.expand(2, 4))
    gradients = way.gradients(*transposed, v, gradient.mT.contiguous().mT)
    for actual, expected in zip([scores, *gradients], of_way(way, (query, key, v, gradient)), strict=True):
        torch.testing.assert_close(actual, expected)


@by_every_way
def test_one_number_by_hand(way: Any) -> None:
    query, key = torch.tensor([[[[1.0, -0.5]]]]), torch.tensor([[[[0.5, 0.5], [-1.0, 1.5]]]])
    v = torch.tensor([[2.0, 3.0]])
    # 2·tanh 1.5 + 3·tanh 0, 2·tanh 0 + 3·tanh 1
    torch.testing.assert_close(way.scores(query, key, v), torch.tensor([[[[1.8102965, 2.2847826]]]]))
