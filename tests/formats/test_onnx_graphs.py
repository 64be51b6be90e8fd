"""A translator as two graphs: tracing, the operators of recurrent layers, the state's tensors, and the files."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from attent.attention.arguments import prepare
from attent.attention.attend import attend, explain
from attent.attention.masks import Causal
from attent.errors import AttentError
from attent.formats.onnx_graphs import (
    StepGraph,
    TraceInputs,
    compute_plainly,
    flatten_state,
    gru,
    lstm,
    traced_all_steps,
    tracing,
    unflatten_state,
    write,
)
from attent.layers.recurrent import Cell, Recurrent, RecurrentState
from attent.runs.folder import read


@pytest.mark.parametrize(
    "arguments",
    [
        {"mask": Causal()},
        {"lengths": torch.tensor([5, 2]), "score": "cosine", "normalizer": "sparsemax"},
        {"mask": Causal(), "position": "alibi", "bias": torch.randn(3, 5), "query_start": 1},
    ],
    ids=["causal", "lengths", "bias"],
)
def test_it_computes_what_attend_computes(arguments: dict[str, Any]) -> None:
    query, key, value = torch.randn(2, 4, 3, 7), torch.randn(2, 2, 5, 7), torch.randn(2, 2, 5, 11)
    expected = attend(query, key, value, **arguments)
    prepared = prepare(query, key, value, **arguments)
    torch.testing.assert_close(compute_plainly(*prepared), expected)
    with tracing():
        torch.testing.assert_close(attend(query, key, value, **arguments), expected)


def test_a_single_last_query_needs_no_mask() -> None:
    query, key, value = torch.randn(2, 1, 1, 3), torch.randn(2, 1, 5, 3), torch.randn(2, 1, 5, 3)
    everything = attend(query, key, value)
    with tracing():
        torch.testing.assert_close(attend(query, key, value, mask="causal"), everything)
        torch.testing.assert_close(attend(query, key, value, mask="causal", query_start=0), value[:, :, :1])


def test_what_was_in_its_place_comes_back() -> None:
    tensors = [torch.randn(1, 1, 2, 3)] * 3
    before = explain(*tensors).chosen
    with pytest.raises(KeyError), tracing():
        assert explain(*tensors).chosen == "graph"
        raise KeyError
    assert explain(*tensors).chosen == before


def test_a_position_that_depends_on_the_length_is_computed_in_the_graph() -> None:
    class Look(torch.nn.Module):
        def forward(self, query: Tensor, key: Tensor) -> Tensor:
            return attend(query, key, key, mask="causal", position="alibi")

    query, key = torch.randn(3, 1, 2, 5), torch.randn(3, 1, 7, 5)
    with tracing():
        graph = torch.export.export(Look(), (query, key), dynamic_shapes=({}, {2: torch.export.Dim("keys")}))
    longer = torch.randn(3, 1, 11, 5)
    torch.testing.assert_close(graph.module()(query, longer), Look()(query, longer))


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_it_computes_what_the_layer_computes(cell: Cell) -> None:
    layer = Recurrent(cell, 3, 5)
    inputs, hidden = torch.randn(2, 7, 3), torch.randn(2, 5)
    state = RecurrentState(hidden, torch.randn(2, 5) if cell == "lstm" else None)
    with torch.no_grad():
        expected, after = layer(inputs, state)
        outputs, last, last_cell = traced_all_steps(layer.network, inputs, hidden, state.cell)
        # shapes are known without numbers
        states = (hidden,) if state.cell is None else (hidden, state.cell)
        arguments = inputs, *states, *layer.network.parameters()
        torch.library.opcheck(gru if cell == "gru" else lstm, arguments, test_utils="test_faketensor")
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(last, after.hidden)
    if cell == "lstm":
        torch.testing.assert_close(last_cell, after.cell)


class Pair(NamedTuple):
    one: Tensor
    other: Tensor | None = None


@dataclass(frozen=True)
class State:
    length: int
    layers: tuple[Any, ...]
    beside: Tensor


def test_tensors_of_a_state_have_the_names_of_their_paths_and_are_replaced_in_their_order() -> None:
    first, second, third, fourth = (torch.tensor([number]) for number in (1.0, 2.0, 3.0, 4.0))
    state = State(7, (Pair(first), None, Pair(second, third)), fourth)
    assert [(name, tensor.tolist()) for name, tensor in flatten_state(state)] == [
        ("state.length", [7]),
        ("state.layers.0.one", [1]),
        ("state.layers.2.one", [2]),
        ("state.layers.2.other", [3]),
        ("state.beside", [4]),
    ]
    inputs = [tensor + 4 for _, tensor in flatten_state(state)]
    result = unflatten_state(state, iter(inputs))
    assert all(first is second for (_, first), second in zip(flatten_state(result), inputs, strict=True))
    assert type(result.layers[0]) is Pair
    assert result.layers[1] is None


@pytest.mark.parametrize(
    "settings",
    [{"token_in_query": True}, {"attention": "luong", "cell": "lstm"}, {"attention": "none", "decoder_layers": 2}],
    ids=str,
)
def test_a_step_of_the_open_state_is_a_step_of_the_model(make_run, settings: dict[str, Any]) -> None:
    run = read(make_run(kind="rnn", **settings))
    with torch.no_grad():
        example = TraceInputs.of(run, 0)
        features, after = run.model.step(example.state, example.tokens)
        everything = [True] * len(example.tensors)
        logits, *tensors = StepGraph(run.model, example.state, everything)(example.tokens, *example.tensors)
    assert torch.equal(logits, run.model.output(features))
    for actual, (_, expected) in zip(tensors, flatten_state(after), strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.slow
def test_what_has_no_counterpart_is_said_in_a_line(exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        logging.getLogger("onnxscript").warning("not seen")
        raise NotImplementedError("no such operator\nand a long story")

    monkeypatch.setattr(torch.onnx, "export", fails)
    with pytest.raises(AttentError, match=r"^this model cannot be written as ONNX: no such operator$"):
        write(exported.run, tmp_path)
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: __import__("no_such_package"))
    with pytest.raises(AttentError, match=r"^this needs ONNX: in a clone of attent, pip install '\.\[onnx\]'"):
        write(exported.run, tmp_path)
