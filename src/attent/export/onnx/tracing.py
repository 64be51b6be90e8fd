"""Attention while a model is traced: the plain formula, without what only numbers can tell."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, cast

import torch
from torch import Tensor

from attent.attention import checks, reference
from attent.attention.base import LoweredSide
from attent.attention.call import Call
from attent.attention.masks import Causal
from attent.export.onnx import recurrent
from attent.layers.recurrent import Recurrent

# Which the package's function of the same name hides.
attend: Any = import_module("attent.attention.attend")
_first_position, _forward = checks.first_position, Recurrent.forward


@contextmanager
def tracing() -> Iterator[None]:
    """Until the block ends every attention is computed by `run`, and recurrent layers are one operator.

    Which implementation is quickest depends on the shapes, and a graph is for all of them; nor has ONNX names for our kernels.
    """
    implementations = attend.IMPLEMENTATIONS
    attend.IMPLEMENTATIONS, checks.first_position = {"graph": sys.modules[__name__]}, _position
    Recurrent.forward = recurrent.forward
    try:
        yield
    finally:
        attend.IMPLEMENTATIONS, checks.first_position = implementations, _first_position
        Recurrent.forward = _forward


def unsupported(call: Call) -> str | None:
    """It serves every call."""
    return None


def run(call: Call, query: Tensor, key: LoweredSide, value: Tensor) -> Tensor:
    """The formula but for its care for hidden keys that hold NaN: what a graph has computed of its own source holds none.

    Args and result are those of every implementation, (B, H, Tq, Dv).
    """
    pairs = call.pairs()
    allowed = None if _sees_all(call) else call.allowed(pairs)
    ours, theirs = LoweredSide(query.to(call.accumulation_dtype)), reference.exact_keys(call, key)
    if call.lowered:
        ours = call.score.lower_query(ours.features, theirs.center)
    value = call.repeat_kv(value).to(call.accumulation_dtype)
    return reference.steps_of(call, pairs, ours, theirs, value, allowed, lowered=call.lowered)["output"].to(call.dtype)


def _sees_all(call: Call) -> bool:
    """Whether a single query stands on the last key and may look back at all of them, as in every step of a search."""
    if type(call.mask) is not Causal or call.bias is not None or call.queries != 1:
        return False
    # of tensors (1,) `_position` makes those of a last query alone
    return call.start.shape == (1,) if isinstance(call.start, Tensor) else call.start == call.keys - 1


def _position(start: object, lengths: Tensor | None, batch: int, queries: int, keys: int) -> int | Tensor:
    """As `checks.first_position`; a tensor (1,) where the number is known only when the graph runs."""
    found = _first_position(start, lengths, batch, queries, keys)
    return torch.full((1,), cast(int, found), dtype=torch.int64) if isinstance(found, torch.SymInt) else found
