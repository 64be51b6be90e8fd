from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attent.attention.call import Prepared
from attent.attention.capture.deferred_map import BareSoftmax, Recorded, scaled_dot_product
from attent.attention.capture.nested_tensors import within


def weights_of(query: Tensor, key: Tensor, mask: Tensor | None = None, **options: bool | float) -> Tensor:
    """What PyTorch's own attention does, read off values that are the identity."""
    options = {"enable_gqa" if name == "grouped" else "is_causal" if name == "causal" else name: it for name, it in options.items()}
    identity = torch.eye(key.shape[-2], dtype=key.dtype).expand(*key.shape[:-1], -1)
    return F.scaled_dot_product_attention(query, key, identity, attn_mask=mask, **options)


@pytest.mark.parametrize(
    ("query", "key", "mask", "options"),
    [
        ((2, 3, 5, 4), (2, 3, 7, 4), None, {}),
        ((2, 3, 5, 4), (2, 3, 7, 4), None, {"causal": True}),
        ((2, 3, 7, 4), (2, 3, 5, 4), None, {"causal": True, "scale": 0.3}),
        ((2, 6, 5, 4), (2, 3, 7, 4), (2, 1, 5, 7), {"grouped": True}),
        ((2, 3, 5, 4), (2, 3, 7, 4), (5, 7), {}),
        ((2, 3, 5, 4), (2, 3, 7, 4), (3, 1, 7), {}),
        ((3, 5, 4), (3, 7, 4), (5, 7), {}),
        ((3, 5, 4), (3, 7, 4), (3, 5, 7), {"scale": 2.0}),
        ((3, 5, 4), (3, 7, 4), (1, 7), {}),
        ((5, 4), (7, 4), (5, 7), {}),
        ((1, 3, 5, 4), (2, 3, 7, 4), (2, 1, 5, 7), {}),
        ((2, 3, 2, 5, 4), (2, 3, 2, 7, 4), (3, 1, 5, 7), {}),
    ],
)
@pytest.mark.parametrize("boolean", [True, False])
def test_every_form_of_pytorchs_attention(
    query: tuple[int, ...], key: tuple[int, ...], mask: tuple[int, ...] | None, options: dict[str, bool | float], boolean: bool
) -> None:
    ours, theirs = torch.randn(query), torch.randn(key)
    given = None if mask is None else torch.rand(mask) > 0.3 if boolean else torch.randn(mask)
    found = Recorded(lambda: scaled_dot_product(ours, theirs, given, **options))
    expected = weights_of(ours, theirs, given, **options)
    if expected.dim() > 4:
        expected = expected.flatten(0, -4)
    assert found.shape == tuple(expected.shape)
    torch.testing.assert_close(found.dense(), expected)


@pytest.mark.parametrize("kind", ["boolean", "minus_infinity", "lowest"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_query_that_may_see_nothing_looks_as_in_pytorch(kind: str, dtype: torch.dtype) -> None:
    query, key = torch.randn(2, 3, 5, 4, dtype=dtype), torch.randn(2, 3, 7, 4, dtype=dtype)
    seen = torch.rand(2, 1, 5, 7) > 0.4
    seen[0, :, 2] = False
    hidden = -torch.inf if kind == "minus_infinity" else torch.finfo(dtype).min
    mask = seen if kind == "boolean" else torch.zeros(2, 1, 5, 7, dtype=dtype).masked_fill(~seen, hidden)
    found = Recorded(lambda: scaled_dot_product(query, key, mask))
    torch.testing.assert_close(found.dense(), weights_of(query, key, mask))
    torch.testing.assert_close(found[0, :, 2], torch.full((3, 7), 1 / 7 if kind == "lowest" else 0.0, dtype=dtype))


def test_the_bare_softmax_of_nothing_is_nan() -> None:
    scores, allowed = torch.randn(3, 5), torch.tensor([[True, False, True, True, True], [False] * 5, [True] * 5])
    found = BareSoftmax()(scores, allowed)
    torch.testing.assert_close(found, scores.masked_fill(~allowed, -torch.inf).softmax(-1), equal_nan=True)
    torch.testing.assert_close(BareSoftmax()(scores), scores.softmax(-1))


def test_nothing_is_prepared_before_it_is_looked_at() -> None:
    asked: list[int] = []

    def prepared() -> Prepared:
        asked.append(1)
        return scaled_dot_product(torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4))

    found = Recorded(prepared)
    assert not asked
    assert found.shape == (2, 3, 5, 7)
    assert found.detach().dense().shape == (2, 3, 5, 7)
    torch.testing.assert_close(found.entropy(), -torch.special.xlogy(found.dense(), found.dense()).sum(-1))
    assert len(asked) == 1
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        found.colour  # noqa: B018


def test_a_mask_of_ours_and_causality_together() -> None:
    query, lengths = torch.randn(2, 3, 5, 4), torch.tensor([5, 2])
    found = Recorded(lambda: scaled_dot_product(query, query, within(lengths, 5, lengths), causal=True)).dense()
    torch.testing.assert_close(found[0], weights_of(query, query, causal=True)[0])
    torch.testing.assert_close(found[1, :, :2, :2], weights_of(query[1:, :, :2], query[1:, :, :2], causal=True)[0])
    assert not found[1, :, 2:].any()


def test_positions_are_counted_from_the_first_key_only_where_pytorch_does() -> None:
    query, key = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 5, 4)
    assert scaled_dot_product(query, key, causal=True).call.start == 0
    assert scaled_dot_product(query, key).call.start == 3
