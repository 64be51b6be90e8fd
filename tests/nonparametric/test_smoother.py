import pytest
import torch

from attent.nonparametric import smoother
from attent.nonparametric.kernels import KERNELS
from attent.nonparametric.smoother import RANGE, FastGaussTransform, Smoother, near_keys, smooth, split_boxes


def plain(name: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The textbook's line."""
    weights = KERNELS[name].exponent((query[:, None] - key).abs()).exp()
    return weights @ value / weights.sum(1, keepdim=True)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_estimate_is_the_textbooks(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoother, "SMALL", 0)
    # far from zero, and many bandwidths wide
    key = 1000 + 9 * torch.randn(2000, 2, dtype=torch.float64)
    query = 1000 + 4 * torch.randn(300, 2, dtype=torch.float64)
    value = torch.stack((key[:, 0].sin(), key[:, 1]), 1) - torch.tensor([0.0, 1000.0])
    estimate = Smoother(key, value.to(dtype), KERNELS[name])
    mean, visible = estimate(query)
    expected = plain(name, query, key, value)
    assert mean.dtype == dtype
    assert torch.equal(visible, expected.isfinite().all(1))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(mean.double()[visible], expected[visible], atol=20 * tolerance, rtol=tolerance)
    assert not mean[~visible].any()
    assert estimate(query[:0]).mean.shape == (0, 2)


@pytest.mark.parametrize("name", ["gaussian", "epanechnikov", "exponential"])
def test_leaving_one_out_is_the_estimate_of_the_others(name: str) -> None:
    key, value = torch.randn(40, 2, dtype=torch.float64), torch.randn(40, 1, dtype=torch.float64)
    estimate = smooth(KERNELS[name], key, key, value, torch.arange(40))
    for position in range(40):
        others = torch.arange(40) != position
        expected = plain(name, key[position : position + 1], key[others], value[others])
        assert estimate.has_keys[position].item() == bool(expected.isfinite().all())
        if estimate.has_keys[position]:
            torch.testing.assert_close(estimate.mean[position : position + 1], expected)


@pytest.mark.parametrize(
    ("dtype", "spread"),
    [(torch.float32, 100.0), (torch.float64, 1e3), (torch.float32, 1e5), (torch.float64, 1e9), (torch.float32, 1e9)],
)
def test_few_queries_far_apart_keep_their_digits(dtype: torch.dtype, spread: float) -> None:
    key, query = (spread * torch.rand(number, 2, dtype=torch.float64) for number in (20_000, 12))
    value = key[:, :1].sin()
    mean, visible = Smoother(key, value.to(dtype), KERNELS["gaussian"])(query)
    scores = -0.5 * (query[:, None] - key).square().sum(-1)
    torch.testing.assert_close(
        mean.double(), scores.softmax(1) @ value, rtol=0, atol=2e-6 if dtype == torch.float32 else 1e-9
    )
    assert visible.all()
    # a query far from every key is answered by the nearest
    key = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    mean, visible = Smoother(key, 10 * key, KERNELS["gaussian"])(torch.tensor([[1e3]], dtype=torch.float64))
    assert (mean.item(), visible.item()) == (20.0, True)


@pytest.mark.parametrize(("n", "width", "limit"), [(1, 1, 4), (97, 3, 8), (50, 1, 1)])
def test_each_point_lies_in_one_cell_and_in_its_box(n: int, width: int, limit: int) -> None:
    points = torch.randn(n, width, dtype=torch.float64)
    boxes = split_boxes(points, limit)
    assert sorted(boxes.order.tolist()) == list(range(n))
    assert int(boxes.offsets.diff().max()) <= limit
    for cell, (first, last) in enumerate(zip(boxes.offsets[:-1].tolist(), boxes.offsets[1:].tolist(), strict=True)):
        inside = points[boxes.order[first:last]]
        assert torch.equal(boxes.low[cell], inside.amin(0))
        assert torch.equal(boxes.high[cell], inside.amax(0))
    assert not len(boxes.members(torch.zeros(len(boxes.low), dtype=torch.bool)))


def test_wide_cells_are_halved_until_they_are_few() -> None:
    points = 100 * torch.rand(1000, 1, dtype=torch.float64)
    boxes = split_boxes(points, 128, max_width=4.0, min_points=16)
    wide = (boxes.high - boxes.low)[:, 0] > 4.0
    assert bool((boxes.offsets.diff()[wide] < 32).all())
    assert int(boxes.offsets.diff().min()) >= 16
    sparse = split_boxes(points[:100], 128, max_width=4.0, min_points=16, width_limit=6.0)
    assert 4.0 < float((sparse.high - sparse.low).max()) <= 6.0


@pytest.mark.parametrize(
    ("name", "left_out"), [("gaussian", False), *((name, n % 2 == 0) for n, name in enumerate(KERNELS))]
)
def test_what_is_passed_by_could_not_be_seen(name: str, left_out: bool) -> None:
    kernel, precision = KERNELS[name], 1e-6
    key = 30 * torch.rand(4000, 2, dtype=torch.float64)
    query = key[:9] * 0.1 + 12
    boxes = split_boxes(key, 16)
    chosen = boxes.order[near_keys(kernel, query.amin(0), query.amax(0), boxes, precision)]
    weights = kernel.exponent((query[:, None] - key).abs()).exp()
    if left_out:  # a query may not look at the key that counts most
        weights.scatter_(1, weights.argmax(1, keepdim=True), 0.0)
    assert len(chosen) < len(key)
    missed = weights.sum(1) - weights[:, chosen].sum(1)
    assert bool((missed <= 1.001 * precision * weights.sum(1)).all())


@pytest.mark.parametrize(("middle", "width"), [(0.0, 0.01), (-1e4, 0.01), (0.0, 0.3), (-1e4, 9.0)])
def test_the_sums_are_the_textbooks(middle: float, width: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoother, "TRANSFORM_QUERIES", 101)
    key = middle + width * torch.randn(5003, dtype=torch.float64)
    value = torch.stack((torch.ones_like(key), (3 * key).sin(), torch.randn_like(key)), 1)
    query = middle + (width + 2) * torch.randn(307, dtype=torch.float64)
    transform = FastGaussTransform(key, value)
    assert transform.is_faster
    result, near = transform(query)
    expected = torch.exp(-0.5 * (query[:, None] - key).square()) @ value
    assert near.sum() > 200
    # as good as sums of so many numbers are, and as small as those may be of which few keys are seen
    torch.testing.assert_close(result[near], expected[near], rtol=1e-12, atol=1e-14 * len(key))
    shares, right = result[near, 1:] / result[near, :1], expected[near, 1:] / expected[near, :1]
    torch.testing.assert_close(shares, right, rtol=1e-10, atol=1e-10)


def test_those_far_from_every_key_are_told() -> None:
    key = torch.cat((torch.zeros(500), torch.full((500,), 100.0))).double()
    query = torch.tensor([0.0, 3.0, -3.0, 50.0, 100.0, 1e3, -1e17, 1e30, 97.0]).double()
    _, near = FastGaussTransform(key, key[:, None])(query)
    assert near.tolist() == [True, True, True, False, True, False, False, False, True]
    # keys that share no cells do not pay
    spread = torch.arange(100).double()
    assert not FastGaussTransform(spread, spread[:, None]).is_faster
    # what the series leaves out is below rounding
    first = 1.0
    for n in range(1, smoother.TERMS + 1):
        first *= RANGE * smoother.RADIUS / n
    assert first < torch.finfo(torch.float64).eps / 16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_regression_is_the_same_with_it(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    key = torch.cat((torch.randn(3000), 40 + torch.randn(100))).double()[:, None]
    value = torch.stack((key[:, 0].sin(), 7 + key[:, 0]), 1).to(dtype)
    # near keys, between them, beyond them all
    query = torch.cat((torch.randn(400), torch.tensor([20.0, 21.0, 31.0, 36.0, 80.0, 1e3, -1e6])))[:, None].double()
    requests, calls = Smoother(key, value, KERNELS["gaussian"]), []
    monkeypatch.setattr(
        FastGaussTransform,
        "__call__",
        lambda self, tensor, plain=FastGaussTransform.__call__: calls.append(len(tensor)) or plain(self, tensor),
    )
    result = requests(query)
    assert calls == [407]
    monkeypatch.setattr(Smoother, "_can_transform", lambda *arguments: False)
    expected = Smoother(key, value, KERNELS["gaussian"])(query)
    assert calls == [407]
    assert result.has_keys.all()
    assert result.mean.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(result.mean, expected.mean, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", [(3000, 2), (3000, 1)])
def test_other_kernels_and_more_features_do_without(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FastGaussTransform, "__call__", lambda self, tensor: pytest.fail("asked"))
    key = torch.randn(*shape, dtype=torch.float64)
    name = "gaussian" if shape[1] == 2 else "logistic"
    assert Smoother(key, key[:, :1], KERNELS[name])(key[:400]).has_keys.all()
