"""What every mask says of its reach: nothing beyond it may attend, and tiles that stay within it lose nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attent.attention import attend, prepare
from attent.attention.backends import bands
from attent.attention.base import Mask
from attent.attention.call import Call
from attent.attention.masks import Around, Blocks, Causal, Documents, Padding, PerHead, Prefix, Selected, Window
from attent.attention.scores import Additive
from attent.testing import check_part

B, H, TQ, TK = 2, 3, 17, 29
dice = torch.Generator().manual_seed(5)
SELECTED = torch.randint(-3, TK, (B, H, TQ, 3), generator=dice)
MASKS: dict[str, Mask] = {
    "causal": Causal(),
    "padding": Padding(torch.tensor([TK, 5])),
    "window": Window(3, 1),
    "around": Around(TK * torch.rand(B, TQ, generator=dice), 3),
    "window without a right end": Window(2, None),
    "prefix": Prefix(4),
    "prefix | window": Prefix(2) | Window(1, 0),
    "window & padding": Window(4, 4) & Padding(torch.tensor([20, 0])),
    "documents": Documents(
        torch.tensor([[0] * 7 + [1] * 9 + [3] * 10 + [-1] * 3]), torch.randint(0, 5, (1, TQ), generator=dice)
    ),
    "documents by position": Documents(torch.randint(-1, 3, (2, TK), generator=dice)),
    "blocks": Blocks(torch.rand(B, H, 6, 6, generator=dice) < 0.3, 5),
    "selected": Selected(SELECTED),
    "selected & causal": Selected(SELECTED[0, 0]) & Causal(),
    "by head": PerHead([Window(1, 0), Causal(), Documents(torch.randint(0, 3, (1, TK), generator=dice))]),
}


@pytest.mark.parametrize("name", MASKS)
def test_tiles_within_the_reach_lose_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [torch.randn(B, H, length, 4, dtype=torch.float64).requires_grad_() for length in (TQ, TK, TK)]
    score = Additive(4, 4, 5).double() if [*MASKS].index(name) % 2 else "scaled_dot"
    bias = torch.randn(1, H, TQ, TK, dtype=torch.float64)
    outcomes = []
    for minimum in (None, 1, 40, 2**17):
        if minimum is not None:
            monkeypatch.setattr(bands, "LEAST", minimum)
        context = attend(
            *tensors,
            **{"score": score, "mask": MASKS[name], "bias": bias, "dropout": 0.2, "seed": 3},
            implementation="reference" if minimum is None else "tiled",
        )
        outcomes.append([context, *torch.autograd.grad(context.square().sum(), tensors)])
        torch.testing.assert_close(outcomes[-1], outcomes[0])


SCATTERED = {
    **{name: MASKS[name] for name in ("blocks", "selected", "selected & causal")},
    "selected | window": Selected(SELECTED) | Window(1, 0),
    "selected | selected": Selected(SELECTED[:, :1]) | Selected(SELECTED[:1]),
    "blocks & selected": Blocks(torch.rand(6, 6, generator=dice) < 0.5, 5) & Selected(SELECTED),
    "by head": PerHead([Window(1, 0), Selected(SELECTED[:, :1]), Causal()]),
}


def make_call(mask: Mask | Tensor) -> Call:
    return prepare(*(torch.randn(B, H, length, 4) for length in (TQ, TK, TK)), mask=mask).call


@pytest.mark.parametrize("name", [name for name in MASKS if name not in SCATTERED])
def test_where_the_reach_says_it_all_nothing_more_is_asked(name: str) -> None:
    assert MASKS[name].visible_keys(make_call(MASKS[name]).pairs()) is None


@pytest.mark.parametrize("mask", (MASKS | SCATTERED).values(), ids=MASKS | SCATTERED)
def test_masks_of_more_pairs_hold_what_their_slot_asks(mask: Mask) -> None:
    check_part(mask, batch=B, heads=H, queries=TQ, keys=TK)


def test_a_table_has_no_reach_and_either_needs_both() -> None:
    call = make_call(torch.ones(TQ, TK, dtype=torch.bool))
    table, pairs = call.mask, call.pairs()
    assert table.key_range(pairs) is (table | Causal()).key_range(pairs) is None
    assert (table & Causal()).key_range(pairs) is not None
