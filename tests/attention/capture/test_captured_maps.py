from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.attention.attend import attend
from attent.attention.call import Prepared
from attent.attention.capture.captured_maps import (
    ConcatenatedMap,
    DeferredMap,
    Snapshot,
    may_be_overwritten,
    padding_mask,
    prepare_scaled_dot_product,
)
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, ShapeError, StaleMapError


def weights_of(query: Tensor, key: Tensor, mask: Tensor | None = None, **options: bool | float) -> Tensor:
    """What PyTorch's own attention does, read off values that are the identity."""
    options = {"enable_gqa" if name == "is_grouped" else name: it for name, it in options.items()}
    identity = torch.eye(key.shape[-2], dtype=key.dtype).expand(*key.shape[:-1], -1)
    return F.scaled_dot_product_attention(query, key, identity, attn_mask=mask, **options)


@pytest.mark.parametrize(
    ("query", "key", "mask", "options"),
    [
        ((2, 3, 5, 4), (2, 3, 7, 4), None, {}),
        ((2, 3, 5, 4), (2, 3, 7, 4), None, {"is_causal": True}),
        ((2, 3, 7, 4), (2, 3, 5, 4), None, {"is_causal": True, "scale": 0.3}),
        ((2, 6, 5, 4), (2, 3, 7, 4), (2, 1, 5, 7), {"is_grouped": True}),
        ((2, 3, 5, 4), (2, 3, 7, 4), (5, 7), {}),
        ((2, 3, 5, 4), (2, 3, 7, 4), (3, 1, 7), {}),
        ((3, 5, 4), (3, 7, 4), (3, 5, 7), {"scale": 2.0}),
        ((3, 5, 4), (3, 7, 4), (1, 7), {}),
        ((5, 4), (7, 4), (5, 7), {}),
        ((1, 3, 5, 4), (2, 3, 7, 4), (2, 1, 5, 7), {}),
        ((2, 3, 2, 5, 4), (2, 3, 2, 7, 4), (3, 1, 5, 7), {}),
    ],
)
def test_every_form_of_pytorchs_attention(query: Any, key: Any, mask: Any, options: dict[str, Any]) -> None:
    sides = torch.randn(query), torch.randn(key)
    for added in (None,) if mask is None else (torch.rand(mask) > 0.3, torch.randn(mask)):
        deferred = DeferredMap(lambda added=added: prepare_scaled_dot_product(*sides, added, **options))
        expected = weights_of(*sides, added, **options)
        expected = expected.flatten(0, -4) if expected.dim() > 4 else expected
        assert deferred.shape == tuple(expected.shape)
        torch.testing.assert_close(deferred.dense(), expected)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("boolean", torch.float32),
        ("minus_infinity", torch.float64),
        ("lowest", torch.float32),
        ("lowest", torch.float64),
    ],
)
def test_a_query_that_may_see_nothing_looks_as_in_pytorch(kind: str, dtype: torch.dtype) -> None:
    query, key = torch.randn(2, 3, 5, 4, dtype=dtype), torch.randn(2, 3, 7, 4, dtype=dtype)
    visible = torch.rand(2, 1, 5, 7) > 0.4
    visible[0, :, 2] = False
    hidden = -torch.inf if kind == "minus_infinity" else torch.finfo(dtype).min
    mask = visible if kind == "boolean" else torch.zeros(2, 1, 5, 7, dtype=dtype).masked_fill(~visible, hidden)
    deferred = DeferredMap(lambda: prepare_scaled_dot_product(query, key, mask))
    torch.testing.assert_close(deferred.dense(), weights_of(query, key, mask))
    torch.testing.assert_close(deferred[0, :, 2], torch.full((3, 7), 1 / 7 if kind == "lowest" else 0.0, dtype=dtype))


def test_nothing_is_prepared_before_it_is_looked_at() -> None:
    requests: list[int] = []

    def prepared() -> Prepared:
        requests.append(1)
        return prepare_scaled_dot_product(torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4))

    deferred = DeferredMap(prepared)
    assert not requests
    assert deferred.shape == (2, 3, 5, 7)
    assert deferred.detach().dense().shape == (2, 3, 5, 7)
    torch.testing.assert_close(deferred.entropy(), -torch.special.xlogy(deferred.dense(), deferred.dense()).sum(-1))
    assert len(requests) == 1
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        deferred.colour  # noqa: B018


def test_a_mask_of_ours_and_causality_together() -> None:
    query, lengths = torch.randn(2, 3, 5, 4), torch.tensor([5, 2])
    mask = padding_mask(lengths, 5, lengths)
    dense = DeferredMap(lambda: prepare_scaled_dot_product(query, query, mask, is_causal=True)).dense()
    torch.testing.assert_close(dense[0], weights_of(query, query, is_causal=True)[0])
    short = query[1:, :, :2]
    torch.testing.assert_close(dense[1, :, :2, :2], weights_of(short, short, is_causal=True)[0])
    assert not dense[1, :, 2:].any()


def shares(first: torch.Tensor, second: torch.Tensor) -> bool:
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


@pytest.mark.parametrize("kind", ["written", "buffer", "parameter", "inference"])
def test_what_may_be_written_over_is_copied(kind: str) -> None:
    if kind == "written":
        tensor = torch.zeros(3).fill_(2.0)
    elif kind == "buffer":
        tensor = torch.zeros(2, 40, 3)[:, :5]
    elif kind == "parameter":
        with torch.no_grad():
            tensor = nn.Parameter(torch.zeros(2, 3)).view(3, 2)
    else:
        with torch.inference_mode():
            tensor = torch.zeros(3) + 1
    expected = tensor.clone()
    assert may_be_overwritten(tensor)
    snapshot = Snapshot.of(tensor)
    with torch.inference_mode():
        tensor.add_(1.0)
    assert torch.equal(snapshot.get(), expected)


def test_what_was_just_computed_is_not_copied_and_a_change_in_place_is_noticed() -> None:
    computed = torch.randn(2, 5, 9, requires_grad=True) * 2
    for part in (computed, *computed.chunk(3, -1)):
        held = Snapshot.of(part).get()
        assert shares(held, part)
        assert not held.requires_grad
    tensor, parameter = torch.zeros(3) + 1, nn.Parameter(torch.zeros(3))
    snapshot, held = Snapshot.of(tensor), Snapshot.of_parameter(parameter)
    assert shares(held.get(), parameter)
    tensor.add_(1.0)
    nn.init.ones_(parameter)
    for item in (snapshot, held):
        with pytest.raises(StaleMapError, match="changed in place after the call"):
            item.get()


def call_maps() -> tuple[list[AttentionMap], AttentionMap]:
    """The maps of a prompt of three tokens and two steps of one, and that of all five at once."""
    query, key, value = (torch.randn(2, 3, 5, 4) for _ in range(3))

    def weights(rows: slice, keys: int) -> AttentionMap:
        return attend(query[:, :, rows], key[:, :, :keys], value[:, :, :keys], mask="causal", return_map=True)[1]

    return [weights(slice(0, 3), 3), weights(slice(3, 4), 4), weights(slice(4, 5), 5)], weights(slice(0, 5), 5)


def test_steps_below_one_another_are_the_map_of_all() -> None:
    step_maps, expected = call_maps()
    joined = ConcatenatedMap(step_maps)
    assert joined.shape == (2, 3, 5, 5)
    dense = expected.dense()
    torch.testing.assert_close(joined.dense(), dense)
    torch.testing.assert_close(joined[1, :, [4, 0, 3], 2:], dense[1, :, [4, 0, 3], 2:])
    assert torch.equal(joined.argmax(), expected.argmax())
    statistics = (
        [it.entropy(), it.received(), it.distance(), it.pooled(2, 3), it.top(2)[1]] for it in (joined, expected)
    )
    torch.testing.assert_close(*statistics)
    # some rows of some heads
    actual = torch.zeros(expected.shape)
    with joined.tiles(range(0, 5, 2), range(1, 2), range(1, 2)) as tiles:
        for tile in tiles:
            actual[(*tile.index, tile.columns)] = tile.weights
    some = torch.zeros(expected.shape)
    some[1, 1, ::2] = dense[1, 1, ::2]
    torch.testing.assert_close(actual, some)
    # detached, and kept
    assert joined.detach() is joined
    snapshot = joined.keep()
    step_maps[1].query.zero_()
    torch.testing.assert_close(snapshot.dense(), dense)
    with pytest.raises(ArgumentError, match="use the map of one call"):
        joined.scores()
    second = torch.randn(2, 1, 3, 4)
    with pytest.raises(ShapeError, match=r"the same batch and heads, got \(2, 3, 3, 3\), \(2, 1, 3, 3\)"):
        ConcatenatedMap([step_maps[0], attend(second, second, second, return_map=True)[1]])
