"""Tracing of models: attention by the plain formula, and a recurrent layer as one operator, which ONNX has too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

import torch
from torch import Tensor, nn

from attent.attention import arguments, reference
from attent.attention.base import LoweredSide
from attent.attention.call import Call
from attent.attention.masks import Causal
from attent.ops import rnn

# The function `attend` hides the module of the same name.
attend: Any = import_module("attent.attention.attend")
_first_position, _all_steps = arguments.first_query_position, rnn.all_steps


@contextmanager
def tracing() -> Iterator[None]:
    """Within the block, compute every attention by `run`, and recurrent layers by one operator.

    A graph is for all shapes, while the choice of an implementation depends on them; and ONNX does not have our
    kernels.
    """
    implementations = attend.IMPLEMENTATIONS
    attend.IMPLEMENTATIONS, arguments.first_query_position = {"graph": sys.modules[__name__]}, _position
    rnn.all_steps = traced_all_steps
    try:
        yield
    finally:
        attend.IMPLEMENTATIONS, arguments.first_query_position = implementations, _first_position
        rnn.all_steps = _all_steps


def unsupported(call: Call) -> str | None:
    """Return None: every call is supported."""
    return None


def run(call: Call, query: Tensor, key: LoweredSide, value: Tensor) -> Tensor:
    """Compute the formula without its protection from NaN in hidden keys, which a graph never has.

    Args and result, (B, H, Tq, Dv), as in every implementation.
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
    """Return whether the only query is at the last key and sees all of them, as in every step of a search."""
    if type(call.mask) is not Causal or call.bias is not None or call.queries != 1:
        return False
    # `_position` returns a tensor (1,) only for a last query
    return call.start.shape == (1,) if isinstance(call.start, Tensor) else call.start == call.keys - 1


def _position(start: object, lengths: Tensor | None, batch: int, queries: int, keys: int) -> int | Tensor:
    """Return `arguments.first_query_position`; a tensor (1,) if the number is known only when the graph runs."""
    position = _first_position(start, lengths, batch, queries, keys)
    return torch.full((1,), cast(int, position), dtype=torch.int64) if isinstance(position, torch.SymInt) else position


# The order of the gates in ONNX, by their indices in PyTorch's: reset, update, new; input, forget, cell, output.
GRU_GATES, LSTM_GATES = (1, 0, 2), (0, 3, 1, 2)


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
    """Return h of every step, and h and c of the last one, as `gru`."""
    weights = [w_ih, w_hh, b_ih, b_hh]
    outputs, last, after = torch.lstm(inputs, [hidden[None], cell[None]], weights, True, 1, 0.0, False, False, True)
    return outputs.contiguous(), last[0].clone(), after[0].clone()


@lstm.register_fake
def _(inputs: Tensor, hidden: Tensor, cell: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return inputs.new_empty(*inputs.shape[:2], hidden.shape[1]), torch.empty_like(hidden), torch.empty_like(cell)


def traced_all_steps(network: nn.GRU | nn.LSTM, inputs: Tensor, hidden: Tensor, cell: Tensor | None) -> rnn.States:
    """Compute `ops.rnn.all_steps` by these operators."""
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    weights = [cast(Tensor, getattr(network, name)) for name in names]
    return (*gru(inputs, hidden, *weights), None) if cell is None else lstm(inputs, hidden, cell, *weights)


def translations() -> dict[Any, Callable[..., Any]]:
    """Return the translations of the two operators to ONNX.

    Raises:
        ImportError: onnxscript is not installed.
    """
    op: Any = import_module("onnxscript").opset18

    def stack(parts: Sequence[Any], gates: tuple[int, ...]) -> Any:
        """Return each part's gates in ONNX's order, concatenated: (1, all gates, …)."""
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
            # the reset gate as in PyTorch
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
