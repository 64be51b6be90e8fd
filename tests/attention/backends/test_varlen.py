from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attent.attention import attend, prepare
from attent.attention.backends import select
from attent.attention.masks import Causal, Documents, Padding, Prefix, Selected, Window
from attent.attention.scores import Additive, Gaussian

B, H, TQ, TK = 3, 2, 5, 11
LENGTHS = torch.tensor([11, 4, 0])
FAR = Causal() & Padding(LENGTHS) & Window(6, 0)
CASES: dict[str, dict[str, Any]] = {
    "lengths": {"lengths": LENGTHS},
    "lengths and causal": {"lengths": LENGTHS, "mask": "causal"},
    "from the first key on": {"lengths": LENGTHS, "mask": "causal", "query_start": 0},
    "from where each stands": {"lengths": LENGTHS, "mask": FAR, "query_start": torch.tensor([3, 0, 2])},
    "prefixes": {"mask": Prefix(LENGTHS) & Causal(), "query_start": 6},
    "documents": {"mask": Documents(torch.tensor([[0] * 11, [0, 0, 1, 1] + [-1] * 7, [-1] * 11])), "query_start": 0},
    "a bias": {"lengths": LENGTHS, "bias": torch.randn(B, 1, TQ, TK, dtype=torch.float64)},
    "a bias of keys": {"lengths": LENGTHS, "bias": torch.randn(1, H, TQ, 1, dtype=torch.float64)},
    "a position": {"lengths": LENGTHS, "position": "alibi"},
    "gaussian": {"lengths": LENGTHS, "score": Gaussian()},
    "additive": {"lengths": LENGTHS, "score": Additive(4, 4, 5, heads=H).double()},
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "VARLEN_PADDING", {"dot": 1, "tanh": 1})


def make_inputs(key_heads: int = H) -> list[Tensor]:
    shapes = ((H, TQ, 4), (key_heads, TK, 4), (key_heads, TK, 3))
    return [torch.randn(B, *shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("name", CASES)
def test_each_alone_is_all_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, outcomes = make_inputs((1, H)[[*CASES].index(name) % 2]), []
    required = select.varlen_key_counts(prepare(*tensors, **CASES[name]).call)
    assert required is not None
    assert required[2] == 0
    for worth in (1, 10**9):
        monkeypatch.setattr(select, "VARLEN_PADDING", {"dot": worth, "tanh": worth})
        context = attend(*tensors, **CASES[name])
        outcomes.append([context, *torch.autograd.grad(context.sin().sum(), tensors)])
    torch.testing.assert_close(*outcomes)
    assert outcomes[0][0][2].count_nonzero() == 0


def test_no_more_keys_than_needed_are_computed_with(monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[tuple[int, bool]] = []
    original = torch.nn.functional.scaled_dot_product_attention

    def recording(query: Tensor, key: Tensor, *arguments: Any, attn_mask: Any, **named: Any) -> Tensor:
        widths.append((key.shape[2], attn_mask is None))
        return original(query, key, *arguments, attn_mask=attn_mask, **named)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", recording)
    with torch.no_grad():
        attend(*make_inputs(), lengths=LENGTHS)
    assert widths == [(11, True), (4, True)]


def test_hidden_nan_stays_hidden() -> None:
    tensors = make_inputs()
    for tensor in tensors[1:]:
        tensor.data[1, :, 4:] = torch.nan
    context = attend(*tensors, lengths=LENGTHS)
    assert all(torch.isfinite(result).all() for result in (context, *torch.autograd.grad(context.sum(), tensors)))


def test_what_is_computed_together() -> None:
    for arguments in (
        {},
        {"mask": "causal"},
        {"lengths": torch.tensor([11, 11, 11])},
        {"lengths": LENGTHS, "dropout": 0.5, "seed": 1},
        {"lengths": LENGTHS, "normalizer": "sparsemax"},
        {"lengths": LENGTHS, "score": lambda query, key: query @ key.mT},
        {"lengths": LENGTHS, "mask": Selected(torch.zeros(TQ, 2, dtype=torch.long))},
        {"mask": Padding(torch.tensor([4]))},
    ):
        assert select.varlen_key_counts(prepare(*make_inputs(), **arguments).call) is None


def test_little_padding_is_computed_with(monkeypatch: pytest.MonkeyPatch) -> None:
    call = prepare(*make_inputs(), lengths=torch.tensor([11, 9, 10])).call
    # three keys of padding, for five queries of two heads
    for worth, split in ((10, True), (11, False)):
        monkeypatch.setattr(select, "VARLEN_PADDING", {"dot": worth, "tanh": 1})
        assert (select.varlen_key_counts(call) is not None) is split
