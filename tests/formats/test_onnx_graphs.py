import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from attent.errors import AttentError
from attent.formats import onnx_graphs as graphs
from attent.formats.onnx_graphs import (
    AFTER,
    ENCODER,
    LENGTHS,
    LOGITS,
    SOURCE,
    STEP,
    TOKENS,
    StepGraph,
    TraceInputs,
    write,
)
from attent.runs.folder import read

# the exporter alone takes half a minute on a slow machine
pytestmark = pytest.mark.slow


def test_both_graphs_have_rows_and_lengths_of_any_number(exported) -> None:
    import onnx

    names = [part.name for part in exported.manifest.state]
    for file, inputs, outputs in (
        (ENCODER, [SOURCE, LENGTHS], [LOGITS, *names]),
        (
            STEP,
            [TOKENS, *names],
            [LOGITS, *(AFTER + part.name for part in exported.manifest.state if not part.is_constant)],
        ),
    ):
        graph = onnx.load(exported.folder / file).graph
        assert [value.name for value in graph.input] == inputs
        assert [value.name for value in graph.output] == outputs
        shapes = {
            value.name: [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim]
            for value in graph.input
        }
        assert all(shape[0] == "rows" for name, shape in shapes.items() if name != "state.length")
        if file == STEP:
            assert shapes["state.written.0.value"] == ["rows", 4, "written", 6]
            assert shapes["state.source.0.value"] == ["rows", 4, "source_length", 6]


def test_the_state_says_what_a_search_moves(exported) -> None:
    values = {part.name: (part.side, part.is_constant) for part in exported.manifest.state}
    assert values == {
        "state.length": ("neither", False),
        "state.lengths": ("source", True),
        "state.written.0.key.features": ("written", False),
        "state.written.0.value": ("written", False),
        "state.source.0.key.features": ("source", True),
        "state.source.0.value": ("source", True),
    }


RNNS: list[dict[str, Any]] = [
    {"attention": "bahdanau"},
    {"attention": "bahdanau", "token_in_query": True},
    {"attention": "luong", "cell": "lstm"},
    {"attention": "none", "decoder_layers": 2},
]


@pytest.mark.parametrize("settings", RNNS, ids=lambda settings: "-".join(map(str, settings.values())))
def test_a_step_of_the_open_state_is_a_step_of_the_model(make_run, settings: dict[str, Any]) -> None:
    run = read(make_run(kind="rnn", **settings))
    with torch.no_grad():
        example = TraceInputs.of(run, 0)
        features, after = run.model.step(example.state, example.tokens)
        everything = [True] * len(example.tensors)
        logits, *tensors = StepGraph(run.model, example.state, everything)(example.tokens, *example.tensors)
    assert torch.equal(logits, run.model.output(features))
    for actual, (_, expected) in zip(tensors, graphs.flatten_state(after), strict=True):
        assert torch.equal(actual, expected)


def test_what_has_no_counterpart_is_said_in_a_line(exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        logging.getLogger("onnxscript").warning("not seen")
        raise NotImplementedError("no such operator\nand a long story")

    monkeypatch.setattr(torch.onnx, "export", fails)
    with pytest.raises(AttentError, match=r"^this model cannot be written as ONNX: no such operator$"):
        write(exported.run, tmp_path)
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: __import__("no_such_package"))
    with pytest.raises(AttentError, match=r"^this needs ONNX: pip install 'attent\[onnx\]'"):
        write(exported.run, tmp_path)
