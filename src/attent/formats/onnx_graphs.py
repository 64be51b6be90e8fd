"""Export of a translator as two ONNX graphs: from the source to the first token's logits, and one further step.

    encoder.onnx   source (B, Tk), lengths (B,)  →  logits (B, V) after BOS, state
    step.onnx      tokens (B,), state            →  logits (B, V), changed parts of the state

The state is passed between them as one tensor per part. Everything that each step needs from the source, such as the
keys of the memory, is computed once, in the first graph. Both contain the decoder's weights, since the first graph
computes the first step. While a model is traced, attention is computed by the plain formula, and a recurrent layer is a
single operator, which has an ONNX counterpart.
"""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn

from attent.attention import arguments, reference
from attent.attention.base import LoweredSide
from attent.attention.call import Call
from attent.attention.masks import Causal
from attent.errors import AttentError, needs
from attent.models.model import EncoderDecoder
from attent.ops import rnn
from attent.runs.folder import Run
from attent.text.tokenizer import BOS

S = TypeVar("S")
ENCODER, STEP = "encoder.onnx", "step.onnx"
SOURCE, LENGTHS, TOKENS, LOGITS = "source", "lengths", "tokens", "logits"
# Prefix of the names of tensors that a step returns.
AFTER = "after."
# Two values of each size, which reveal the axes that depend on it; no two pairs are equal.
TRACE_SIZES = {"rows": (3, 5), "source_length": (4, 6), "written": (2, 3)}
LOGGERS = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")
# The order of the gates in ONNX, by their indices in PyTorch's: reset, update, new; input, forget, cell, output.
GRU_GATES, LSTM_GATES = (1, 0, 2), (0, 3, 1, 2)
# The function `attend` hides the module of the same name.
attend: Any = import_module("attent.attention.attend")
_first_position, _all_steps = arguments.first_query_position, rnn.all_steps


class StateTensor(NamedTuple):
    """A tensor of a decoder's state.

    Args:
        name: its name in the graphs.
        side: "written" and "source" tensors have one row for each row of the batch, which a search selects; "neither"
            tensors have no such rows.
        is_constant: True if a step does not change it.
    """

    name: str
    side: Literal["written", "source", "neither"]
    is_constant: bool

    def entry(self) -> dict[str, Any]:
        """Return the tensor's entry in the manifest."""
        return {"name": self.name, "side": self.side, "kept": self.is_constant}


class EncoderGraph(nn.Module):
    """The first graph: from the source to the first logits."""

    def __init__(self, model: EncoderDecoder[Any]) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """Return the logits after BOS, (B, V), and every tensor of the state."""
        state = self.model.start(self.model.encode(source, lengths))
        features, state = self.model.step(state, torch.full_like(lengths, BOS))
        return self.model.output(features), *(tensor for _, tensor in flatten_state(state))


class StepGraph(nn.Module):
    """The second graph: one step.

    Args:
        model: the model.
        like: an example of the state, for its structure.
        is_changed: True for each of the state's tensors that a step changes.
    """

    def __init__(self, model: EncoderDecoder[Any], like: Any, is_changed: list[bool]) -> None:
        super().__init__()
        self.model, self.like, self.is_changed = model, like, is_changed

    def forward(self, tokens: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        """Return the logits (B, V) after one more token (B,), and the changed tensors of the state."""
        features, after = self.model.step(unflatten_state(self.like, iter(state)), tokens)
        changed = (tensor for (_, tensor), new in zip(flatten_state(after), self.is_changed, strict=True) if new)
        return self.model.output(features), *changed


class TraceInputs(NamedTuple):
    """Inputs for tracing a model: a source, its lengths, tokens, and the state after some steps."""

    source: Tensor
    lengths: Tensor
    tokens: Tensor
    state: Any

    @classmethod
    def of(cls, run: Run, index: int) -> TraceInputs:
        """Make inputs with the first or the second of each of `TRACE_SIZES`."""
        rows, length, steps = (sizes[index] for sizes in TRACE_SIZES.values())
        generator = torch.Generator().manual_seed(0)
        source = torch.randint(run.source_tokenizer.size, (rows, length), generator=generator)
        tokens = torch.randint(run.target_tokenizer.size, (rows,), generator=generator)
        lengths = length - torch.arange(rows) % 2
        state = run.model.start(run.model.encode(source, lengths))
        for _ in range(steps):
            _, state = run.model.step(state, tokens)
        return cls(source, lengths, tokens, state)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors of the state."""
        return [tensor for _, tensor in flatten_state(self.state)]


def write(run: Run, folder: Path) -> list[StateTensor]:
    """Write both graphs of a run's model into a folder.

    Returns:
        The state's tensors, in the order of the graphs.

    Raises:
        AttentError: the model cannot be traced, or a part of it has no counterpart in ONNX.
    """
    with torch.no_grad(), tracing():
        first, second = TraceInputs.of(run, 0), TraceInputs.of(run, 1)
        named = [_axes(*shapes) for shapes in zip(first.tensors, second.tensors, strict=True)]
        parts = _state_tensors(run.model, first, named)
        # learned positions limit the length
        dims = {name: torch.export.Dim(name, max=None if name == "rows" else run.model.longest) for name in TRACE_SIZES}
        names, rows = [part.name for part in parts], {0: dims["rows"]}
        export_graph(
            EncoderGraph(run.model),
            (first.source, first.lengths),
            ({**rows, 1: dims["source_length"]}, rows),
            [SOURCE, LENGTHS],
            [LOGITS, *names],
            folder / ENCODER,
        )
        export_graph(
            StepGraph(run.model, first.state, [not part.is_constant for part in parts]),
            (first.tokens, *(tensor.contiguous() for tensor in first.tensors)),
            (rows, tuple({axis: dims[name] for axis, name in axes.items()} for axes in named)),
            [TOKENS, *names],
            [LOGITS, *(AFTER + part.name for part in parts if not part.is_constant)],
            folder / STEP,
        )
    return parts


def _state_tensors(model: EncoderDecoder[Any], example: TraceInputs, named: list[dict[int, str]]) -> list[StateTensor]:
    """Determine by trial which tensors of the state a search reorders, and which ones a step leaves unchanged."""
    _, after = model.step(example.state, example.tokens)
    reordered = example.state.reorder(torch.arange(len(example.tokens)).flip(0))
    parts: list[StateTensor] = []
    for (name, tensor), (_, moved), (_, new), axes in zip(
        flatten_state(example.state), flatten_state(reordered), flatten_state(after), named, strict=True
    ):
        side = "neither" if axes.get(0) != "rows" else "source" if moved is tensor else "written"
        parts.append(StateTensor(name, side, new is tensor))
    return parts


def _axes(first: Tensor, second: Tensor) -> dict[int, str]:
    """Return the names of the axes whose sizes differ between the two traces."""
    names = {sizes: name for name, sizes in TRACE_SIZES.items()}
    return {
        axis: names[pair] for axis, pair in enumerate(zip(first.shape, second.shape, strict=True)) if pair[0] != pair[1]
    }


@needs("this needs ONNX", "onnx")
def export_graph(
    module: nn.Module,
    arguments: tuple[Tensor, ...],
    axes: tuple[Any, ...],
    inputs: list[str],
    outputs: list[str],
    file: Path,
) -> None:
    """Trace a module, and write it as ONNX.

    Args:
        module: the module to trace; it is put into evaluation mode.
        arguments: example inputs.
        axes: the dynamic axes of each input.
        inputs: the names of the inputs.
        outputs: the names of the outputs.
        file: the file to write.

    Raises:
        AttentError: the module cannot be traced, or a part of it has no counterpart in ONNX.
    """
    try:
        with _quiet():
            # traced here, since the exporter itself would silently fix sizes that cannot be dynamic
            graph = torch.export.export(
                module.eval(),
                arguments,
                dynamic_shapes=axes,
                # assume facts about sizes that cannot be proved, such as min(2n, n) = n
                prefer_deferred_runtime_asserts_over_guards=True,
            )
            program = torch.onnx.export(
                graph,
                dynamo=True,
                verbose=False,
                # for the names of the axes
                dynamic_shapes=axes,
                input_names=inputs,
                output_names=outputs,
                custom_translation_table=translations(),
            )
        assert program is not None
        program.save(file)
    except (RuntimeError, ValueError, NotImplementedError, torch.onnx.errors.OnnxExporterError) as error:
        raise AttentError(f"this model cannot be written as ONNX: {str(error).splitlines()[0]}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's log within the block."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def flatten_state(state: Any, name: str = "state") -> list[tuple[str, Tensor]]:
    """Return every tensor in a state with its path, in order; an int becomes a tensor (1,).

    Args:
        state: nested dataclasses and tuples, named or not, of tensors, ints and None.
        name: the name of the state itself.
    """
    if state is None:
        return []
    if isinstance(state, Tensor):
        return [(name, state)]
    if isinstance(state, int | torch.SymInt):
        return [(name, torch.full((1,), cast(int, state), dtype=torch.int64))]
    return [item for field, value in _fields(state) for item in flatten_state(value, f"{name}.{field}")]


def unflatten_state(like: S, tensors: Iterator[Tensor]) -> S:
    """Return a state with the structure of `like` and these tensors, in the order of `flatten_state`."""
    if like is None:
        return like
    if isinstance(like, Tensor | int | torch.SymInt):
        return next(tensors)  # pyright: ignore[reportReturnType]
    values = [unflatten_state(value, tensors) for _, value in _fields(like)]
    return like.__class__(values) if type(like) is tuple else like.__class__(*values)


def _fields(state: Any) -> list[tuple[str, Any]]:
    if dataclasses.is_dataclass(state):
        return [(field.name, getattr(state, field.name)) for field in dataclasses.fields(state)]
    return list(zip(getattr(state, "_fields", map(str, range(len(state)))), state, strict=True))


@contextmanager
def tracing() -> Iterator[None]:
    """Within the block, compute all attention by the plain formula, and each recurrent layer by a single operator.

    A graph must work for all shapes, while the choice of an implementation depends on them; and our kernels do not
    exist in ONNX.
    """
    implementations = attend.IMPLEMENTATIONS
    attend.IMPLEMENTATIONS, arguments.first_query_position = {"graph": PLAIN_FORMULA}, _position
    rnn.all_steps = traced_all_steps
    try:
        yield
    finally:
        attend.IMPLEMENTATIONS, arguments.first_query_position = implementations, _first_position
        rnn.all_steps = _all_steps


def compute_plainly(call: Call, query: Tensor, key: LoweredSide, value: Tensor) -> Tensor:
    """Compute the formula without its protection against NaN in hidden keys, which never occurs in a graph.

    The arguments and the result (B, H, Tq, Dv) are those of every implementation.
    """
    pairs = call.pairs()
    allowed = None if _sees_all(call) else call.allowed(pairs)
    query_side, key_side = LoweredSide(query.to(call.accumulation_dtype)), reference.exact_keys(call, key)
    if call.lowered:
        query_side = call.score.lower_query(query_side.features, key_side.center)
    value = call.repeat_kv(value).to(call.accumulation_dtype)
    return reference.steps_for_pairs(call, pairs, query_side, key_side, value, allowed, lowered=call.lowered)[
        "output"
    ].to(call.dtype)


def _sees_all(call: Call) -> bool:
    """Return whether there is only one query, at the last key, that sees all keys, as in each step of a search."""
    if type(call.mask) is not Causal or call.bias is not None or call.queries != 1:
        return False
    # `_position` returns a tensor (1,) only for a last query
    return call.start.shape == (1,) if isinstance(call.start, Tensor) else call.start == call.keys - 1


def _position(start: object, lengths: Tensor | None, batch: int, queries: int, keys: int) -> int | Tensor:
    """Return `arguments.first_query_position`, as a tensor (1,) if it is only known when the graph runs."""
    position = _first_position(start, lengths, batch, queries, keys)
    return torch.full((1,), cast(int, position), dtype=torch.int64) if isinstance(position, torch.SymInt) else position


# The only implementation of attention while a model is traced.
PLAIN_FORMULA = SimpleNamespace(unsupported=lambda call: None, run=compute_plainly)


@torch.library.custom_op("attent::traced_gru", mutates_args=())
def gru(
    inputs: Tensor, hidden: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    """Return h of every step (B, T, E) and of the last one (B, E), from inputs (B, T, n) and the initial h (B, E)."""
    weights = [w_ih, w_hh, b_ih, b_hh]
    outputs, last = torch.gru(inputs, hidden[None], weights, True, 1, 0.0, False, False, True)
    return outputs.contiguous(), last[0].clone()


@gru.register_fake
def _(inputs: Tensor, hidden: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
    return inputs.new_empty(*inputs.shape[:2], hidden.shape[1]), torch.empty_like(hidden)


@torch.library.custom_op("attent::traced_lstm", mutates_args=())
def lstm(
    inputs: Tensor, hidden: Tensor, cell: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return h of every step (B, T, E), and h and c of the last one (B, E); see `gru`."""
    weights = [w_ih, w_hh, b_ih, b_hh]
    outputs, last, after = torch.lstm(inputs, [hidden[None], cell[None]], weights, True, 1, 0.0, False, False, True)
    return outputs.contiguous(), last[0].clone(), after[0].clone()


@lstm.register_fake
def _(inputs: Tensor, hidden: Tensor, cell: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return inputs.new_empty(*inputs.shape[:2], hidden.shape[1]), torch.empty_like(hidden), torch.empty_like(cell)


def traced_all_steps(network: nn.GRU | nn.LSTM, inputs: Tensor, hidden: Tensor, cell: Tensor | None) -> rnn.States:
    """Compute `ops.rnn.all_steps` with the operators `gru` and `lstm`."""
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    weights = [cast(Tensor, getattr(network, name)) for name in names]
    return (*gru(inputs, hidden, *weights), None) if cell is None else lstm(inputs, hidden, cell, *weights)


def translations() -> dict[Any, Callable[..., Any]]:
    """Return translations of the two operators into ONNX.

    Raises:
        ImportError: onnxscript is not installed.
    """
    op: Any = import_module("onnxscript").opset18

    def stack(parts: Sequence[Any], gates: tuple[int, ...]) -> Any:
        """Concatenate the gates of all parts in ONNX's order: (1, all gates, …)."""
        ordered = []
        for part in parts:
            split = op.Split(part, num_outputs=len(gates), axis=0)
            ordered += [split[gate] for gate in gates]
        return op.Unsqueeze(op.Concat(*ordered, axis=0), [0])

    def all_steps(outputs: Any) -> Any:
        return op.Transpose(op.Squeeze(outputs, [1]), perm=[1, 0, 2])

    def of_gru(inputs: Any, hidden: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
        outputs, last = op.GRU(
            op.Transpose(inputs, perm=[1, 0, 2]),
            stack([w_ih], GRU_GATES),
            stack([w_hh], GRU_GATES),
            stack([b_ih, b_hh], GRU_GATES),
            None,
            op.Unsqueeze(hidden, [0]),
            hidden_size=w_hh.shape[1],
            # apply the reset gate as PyTorch does
            linear_before_reset=1,
        )
        return all_steps(outputs), op.Squeeze(last, [0])

    def of_lstm(inputs: Any, hidden: Any, cell: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
        outputs, last, after = op.LSTM(
            op.Transpose(inputs, perm=[1, 0, 2]),
            stack([w_ih], LSTM_GATES),
            stack([w_hh], LSTM_GATES),
            stack([b_ih, b_hh], LSTM_GATES),
            None,
            op.Unsqueeze(hidden, [0]),
            op.Unsqueeze(cell, [0]),
            hidden_size=w_hh.shape[1],
        )
        return all_steps(outputs), op.Squeeze(last, [0]), op.Squeeze(after, [0])

    return {torch.ops.attent.traced_gru.default: of_gru, torch.ops.attent.traced_lstm.default: of_lstm}
