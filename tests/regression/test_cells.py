from __future__ import annotations

import pytest
import torch

from attent.regression.cells import cells, near
from attent.regression.kernels import KERNELS


@pytest.mark.parametrize(("n", "width", "most"), [(1, 1, 4), (97, 3, 8), (64, 2, 64), (50, 1, 1)])
def test_each_point_lies_in_one_cell_and_in_its_box(n: int, width: int, most: int) -> None:
    points = torch.randn(n, width, dtype=torch.float64)
    found = cells(points, most)
    assert sorted(found.order.tolist()) == list(range(n))
    assert int(found.starts.diff().max()) <= most
    for cell, (first, last) in enumerate(zip(found.starts[:-1].tolist(), found.starts[1:].tolist(), strict=True)):
        inside = points[found.order[first:last]]
        assert torch.equal(found.low[cell], inside.amin(0))
        assert torch.equal(found.high[cell], inside.amax(0))


def test_wide_cells_are_halved_until_they_are_few() -> None:
    points = 100 * torch.rand(1000, 1, dtype=torch.float64)
    found = cells(points, 128, widest=4.0, least=16)
    wide = (found.high - found.low)[:, 0] > 4.0
    assert bool((found.starts.diff()[wide] < 32).all())
    assert int(found.starts.diff().min()) >= 16
    sparse = cells(points[:100], 128, widest=4.0, least=16, limit=6.0)
    assert 4.0 < float((sparse.high - sparse.low).max()) <= 6.0


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("left_out", [False, True])
def test_what_is_passed_by_could_not_be_seen(name: str, left_out: bool) -> None:
    kernel, precision = KERNELS[name], 1e-6
    key = 30 * torch.rand(4000, 2, dtype=torch.float64)
    query = key[:9] * 0.1 + 12
    found = cells(key, 16)
    chosen = found.order[near(kernel, query.amin(0), query.amax(0), found, precision)]
    weights = kernel.exponent((query[:, None] - key).abs()).exp()
    if left_out:  # a query may not look at the key that counts most
        weights.scatter_(1, weights.argmax(1, keepdim=True), 0.0)
    assert len(chosen) < len(key)
    missed = weights.sum(1) - weights[:, chosen].sum(1)
    assert bool((missed <= 1.001 * precision * weights.sum(1)).all())


def test_members_of_no_cell() -> None:
    found = cells(torch.randn(9, 2), 4)
    assert not len(found.members(torch.zeros(len(found.low), dtype=torch.bool)))
