from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from attent.attention.attend import attend
from attent.attention.maps.attention_map import AttentionMap
from attent.attention.maps.lazy_tensor import LazyTensor
from attent.errors import StaleMapError

QUERIES, KEYS = 9, 7


class RecordedMap(AttentionMap):
    """A map that records how many rows were computed."""

    rows_computed: int

    def rows(self, rows: Tensor) -> Tensor:
        self.rows_computed += len(rows)
        return super().rows(rows)

    def dense(self) -> Tensor:
        self.rows_computed += self.call.queries
        return super().dense()


def lazy(*, requires_grad: bool = False, keys: int | None = None) -> tuple[LazyTensor, RecordedMap, Tensor]:
    """A lazy tensor, its map, and the weights as a plain tensor."""
    query, key = torch.randn(2, 3, QUERIES, 4, requires_grad=requires_grad), torch.randn(2, 3, KEYS, 4)
    _, weights = attend(query, key, torch.randn(2, 3, KEYS, 5), return_map=True)
    recorded = RecordedMap(weights.call, weights.query, weights.key)
    recorded.rows_computed = 0
    return LazyTensor(recorded, torch.float32, keys), recorded, (query.detach() / 2 @ key.mT).softmax(-1)


def saved_and_loaded(value: Any) -> Any:
    """What `torch.save` wrote, read as plain tensors are: without running code of the file's."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_a_look_at_its_form_computes_nothing() -> None:
    weights, recorded, expected = lazy()
    assert isinstance(weights, Tensor)
    assert torch.is_tensor(weights)
    assert weights.shape == weights.size() == expected.shape
    assert (weights.ndim, weights.dim(), len(weights), weights.numel()) == (4, 4, 2, expected.numel())
    assert (weights.dtype, weights.device, weights.requires_grad) == (torch.float32, expected.device, False)
    assert weights.is_floating_point()
    assert {weights: 1}[weights] == 1
    assert weights.cpu() is weights
    assert weights.detach() is weights
    assert isinstance(lazy(requires_grad=True)[0].detach(), LazyTensor)
    assert recorded.rows_computed == 0


@pytest.mark.parametrize(
    "operation",
    [
        lambda weights: torch.stack((weights, weights)),
        lambda weights: torch.cat([weights, weights.detach()], 1),
        lambda weights: weights.mean(1),
        lambda weights: weights[1, ..., 2],
        lambda weights: weights[weights > 0.2],
        lambda weights: 1 - weights,
        lambda weights: weights.to(torch.float64).numpy(),
        lambda weights: copy.deepcopy(weights),
        lambda weights: pickle.loads(pickle.dumps(weights)),
        lambda weights: torch.vmap(torch.sum)(weights),
        lambda weights: torch.from_numpy(numpy.asarray(weights)),
        lambda weights: saved_and_loaded((weights, {"weights": weights})),
        lambda weights: weights.clone().mul_(2),
    ],
)
def test_operations_are_those_of_a_tensor(operation: Callable[[Tensor], Any]) -> None:
    weights, recorded, expected = lazy()
    torch.testing.assert_close(operation(weights), operation(expected))
    assert type(weights + 0) is Tensor
    assert recorded.rows_computed <= 2 * QUERIES


@pytest.mark.parametrize(
    "index", [(0, 1, 2), (..., 2, slice(None)), (slice(None), 0, -1, 3), (1, slice(None), slice(2, 4))]
)
def test_an_index_computes_the_rows_that_it_names(index: tuple[Any, ...]) -> None:
    weights, recorded, expected = lazy()
    torch.testing.assert_close(weights[index], expected[index])
    assert recorded.rows_computed <= 2
    for wrong in ((0, 0, QUERIES), (0, 0, 0, 0, 0), (0, 3)):
        with pytest.raises(IndexError):
            weights[wrong]


def test_reading_rows_again_and_again_computes_everything_once() -> None:
    weights, recorded, expected = lazy()
    for head in range(3):
        for row in range(QUERIES):
            torch.testing.assert_close(weights[0, head, row], expected[0, head, row])
    assert recorded.rows_computed == 2 * QUERIES


def test_gradients_reach_the_queries() -> None:
    weights, recorded, _ = lazy(requires_grad=True)
    assert weights.requires_grad
    weights[:, :, 2].square().sum().backward()
    part = recorded.query.grad
    assert part is not None
    assert part[:, :, 2].any()
    assert not part[:, :, 3:].any()
    weights.square().sum().backward()
    assert part[:, :, 3:].any()
    assert not weights.detach().mean().requires_grad


def test_what_is_read_without_gradients_or_in_inference_mode_serves_outside() -> None:
    weights, recorded, _ = lazy(requires_grad=True)
    with torch.no_grad():
        assert not (weights * 1).requires_grad
    weights.square().sum().backward()
    assert recorded.query.grad is not None
    weights, _, expected = lazy()
    with torch.inference_mode():
        torch.testing.assert_close(weights.sum(), expected.sum())
    factor = torch.ones((), requires_grad=True)
    (weights * factor).sum().backward()
    torch.testing.assert_close(factor.grad, expected.sum())


def test_further_keys_weigh_nothing() -> None:
    weights, _, expected = lazy(keys=KEYS + 2)
    assert weights.shape == (2, 3, QUERIES, KEYS + 2)
    torch.testing.assert_close(weights[:, :, 1, :KEYS], expected[:, :, 1])
    assert not weights[..., KEYS:].any()


@pytest.mark.parametrize("is_batched", [True, False])
def test_the_mean_over_the_heads_is_computed_by_rows_too(is_batched: bool) -> None:
    query, key = torch.randn(1, 3, QUERIES, 4, requires_grad=True), torch.randn(1, 3, KEYS, 4)
    _, weights = attend(query, key, key, return_map=True)
    average = LazyTensor(weights, torch.float32, KEYS + 2, is_averaged=True, is_batched=is_batched)
    expected = torch.nn.functional.pad((query / 2 @ key.mT).softmax(-1).mean(1), (0, 2))
    expected = expected if is_batched else expected[0]
    assert average.shape == expected.shape == average.detach().shape
    torch.testing.assert_close(average[..., 3, :], expected[..., 3, :])
    torch.testing.assert_close(average[..., 2:4, 1], expected[..., 2:4, 1])
    assert average._dense is None
    torch.testing.assert_close(average.detach().amax(-1), expected.detach().amax(-1))
    torch.testing.assert_close(
        *(torch.autograd.grad(tensor.square().sum(), query)[0] for tensor in (average, expected))
    )


def test_its_map_has_the_statistics_and_a_change_in_place_is_noticed() -> None:
    weights, recorded, expected = lazy()
    torch.testing.assert_close(weights.map.entropy(), torch.special.entr(expected).sum(-1))
    assert recorded.rows_computed == 0
    recorded.query.add_(1)
    with pytest.raises(StaleMapError, match="query was changed"):
        weights.mean()


def test_a_compiled_function_takes_it() -> None:
    weights, _, expected = lazy()
    doubled = torch.compile(lambda tensor: tensor.mean(1) * 2, backend="eager")
    torch.testing.assert_close(doubled(weights), expected.mean(1) * 2)
