from typing import Any

import pytest
import torch

from attent.attention.arguments import prepare
from attent.attention.attend import attend
from attent.attention.masks import Causal
from attent.formats.onnx_tracing import run, tracing, unsupported

CALLS: list[dict[str, Any]] = [
    {"mask": Causal()},
    {"lengths": torch.tensor([5, 2]), "score": "cosine", "normalizer": "sparsemax"},
    {"mask": Causal(), "position": "alibi", "bias": torch.randn(3, 5), "query_start": 1},
]


@pytest.mark.parametrize("arguments", CALLS, ids=["causal", "lengths", "bias"])
def test_it_computes_what_attend_computes(arguments: dict[str, Any]) -> None:
    query, key, value = torch.randn(2, 4, 3, 7), torch.randn(2, 2, 5, 7), torch.randn(2, 2, 5, 11)
    expected = attend(query, key, value, **arguments)
    prepared = prepare(query, key, value, **arguments)
    assert unsupported(prepared.call) is None
    torch.testing.assert_close(run(*prepared), expected)
    with tracing():
        torch.testing.assert_close(attend(query, key, value, **arguments), expected)


def test_a_single_last_query_needs_no_mask() -> None:
    query, key, value = torch.randn(2, 1, 1, 3), torch.randn(2, 1, 5, 3), torch.randn(2, 1, 5, 3)
    everything = attend(query, key, value)
    with tracing():
        torch.testing.assert_close(attend(query, key, value, mask="causal"), everything)
        torch.testing.assert_close(attend(query, key, value, mask="causal", query_start=0), value[:, :, :1])


def test_what_was_in_its_place_comes_back() -> None:
    from attent.attention.attend import explain

    tensors = [torch.randn(1, 1, 2, 3)] * 3
    before = explain(*tensors).chosen
    with pytest.raises(KeyError), tracing():
        assert explain(*tensors).chosen == "graph"
        raise KeyError
    assert explain(*tensors).chosen == before


def test_a_position_that_depends_on_the_length_is_computed_in_the_graph() -> None:
    class Look(torch.nn.Module):
        def forward(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            return attend(query, key, key, mask="causal", position="alibi")

    query, key = torch.randn(3, 1, 2, 5), torch.randn(3, 1, 7, 5)
    with tracing():
        graph = torch.export.export(Look(), (query, key), dynamic_shapes=({}, {2: torch.export.Dim("keys")}))
    longer = torch.randn(3, 1, 11, 5)
    torch.testing.assert_close(graph.module()(query, longer), Look()(query, longer))


def test_rows_are_counted_in_the_graph() -> None:
    from attent.layers.recurrent import Recurrent

    class Empty(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.recurrent = Recurrent("gru", 2, 3)

        def forward(self, like: torch.Tensor) -> torch.Tensor:
            return self.recurrent.zero_state(like).hidden

    with tracing():
        graph = torch.export.export(Empty(), (torch.zeros(5, 2),), dynamic_shapes=({0: torch.export.Dim("rows")},))
    assert graph.module()(torch.zeros(7, 2)).shape == (7, 3)
