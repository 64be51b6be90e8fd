"""Convert a score_mod to attend's own cap, bias and key ranges, if it is a soft cap and a term by head and offset.

This is decided from its dataflow: the function runs once, on the score and the indices of one pair, while every PyTorch
operator that it calls is recorded with its arguments. Anything uncertain counts as a dependence, so a "yes" is certain
and a "no" is not.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attent.attention.base import Pairs, Position
from attent.attention.mask_info import KeyRanges
from attent.ops.eligibility import can_run_custom_function
from attent.ops.pair_functions import IndexByTensors, for_all_offsets

aten = torch.ops.aten
SUMS = {aten.add.Tensor, aten.sub.Tensor}
FILLS = {aten.masked_fill.Scalar, aten.masked_fill.Tensor}
COMPARISONS = {aten.eq.Tensor, aten.ne.Tensor, aten.lt.Tensor, aten.le.Tensor, aten.gt.Tensor, aten.ge.Tensor}


class OffsetBias(Position):
    """A bias that is a function of head and offset, the key's index minus the query's.

    Args:
        bias: the bias of the offsets 1 − Tq to Tk − 1 in order, (H|1, Tq + Tk − 1).
        queries: Tq.
    """

    biases: ClassVar[bool] = True

    def __init__(self, bias: Tensor, queries: int) -> None:
        super().__init__()
        self.vector, self.first = bias, 1 - queries

    def bias_by_offset(self, offsets: Tensor) -> Tensor:
        """Return the bias of these offsets, (H|1, n)."""
        return self.vector[:, offsets - self.first]

    def bias(self, pairs: Pairs) -> Tensor:
        """Return the bias of these pairs, (1, H, Tq, Tk)."""
        query, key = pairs.broadcast_positions()
        return self.bias_by_offset((key - query)[0, 0]).expand(pairs.heads, -1, -1)[None]


class Parts(NamedTuple):
    """A score_mod as arguments of attend."""

    soft_cap: float | None
    position: OffsetBias | None
    mask: KeyRanges | None


def parts_of(score_mod: Callable[..., Tensor], heads: int, queries: int, keys: int, dtype: torch.dtype) -> Parts | None:
    """Return the parts that a score_mod on the CPU consists of; None if that is not certain.

    Args:
        score_mod: a function of the score and its batch, head, query and key indices.
        heads: H.
        queries: Tq.
        keys: Tk.
        dtype: the dtype of the scores.
    """
    if not (heads and queries and keys) or not can_run_custom_function():
        return None
    score = trace(score_mod, dtype)
    if score is None:
        return None
    # for a score of zero, only the term is left
    offsets = torch.arange(1 - queries, keys)
    bias = for_all_offsets(score_mod, torch.arange(heads), offsets, torch.zeros((), dtype=dtype)).to(dtype)
    is_hidden = bias.detach() == -torch.inf
    if not bool((bias.detach().isfinite() | is_hidden).all()):
        return None
    mask = None
    if bool(is_hidden.any()):
        mask = _key_ranges(~is_hidden, offsets, queries, keys)
        if mask is None:
            return None
        bias = bias.masked_fill(is_hidden, 0.0)
    has_bias = bias.requires_grad or bool(bias.any())
    return Parts(score.soft_cap, OffsetBias(bias, queries) if has_bias else None, mask)


def _key_ranges(is_visible: Tensor, offsets: Tensor, queries: int, keys: int) -> KeyRanges | None:
    """Return the keys of visible offsets, (H|1, offsets), as a range for each query; None if they have gaps."""
    first = torch.where(is_visible, offsets, keys).amin(-1, keepdim=True)
    end = torch.where(is_visible, offsets + 1, 1 - queries).amax(-1, keepdim=True)
    if not torch.equal(is_visible.sum(-1, keepdim=True), (end - first).clamp(min=0)):
        return None
    query = torch.arange(queries)
    return KeyRanges(*((query + bound).clamp(0, keys)[None] for bound in (first, end)))


class Known(Enum):
    """Values that are the same for all pairs, or a function of head and offset."""

    CONSTANT = 1
    BY_OFFSET = 2


@dataclass(frozen=True)
class Index:
    """The whole number `query` · (query index) + `key` · (key index) + a function of head and offset.

    The two factors are not opposite numbers.
    """

    query: int = 0
    key: int = 0


@dataclass(frozen=True)
class ScorePath:
    """A score and the steps applied to it.

    The state is "" for the score itself, "divided" by the soft cap, its "tanh", "capped", or the "sum" with a term by
    head and offset.
    """

    state: str = ""
    soft_cap: float | None = None

    @property
    def is_whole(self) -> bool:
        """True if a term may be added."""
        return self.state in ("", "capped", "sum")


# What is known about a value; None if nothing is.
Traced = Known | Index | ScorePath | None


def trace(score_mod: Callable[..., Tensor], dtype: torch.dtype) -> ScorePath | None:
    """Return the score's path through a score_mod, if it ends as the score plus a term by head and offset.

    The score may be soft-capped, cap·tanh(score/cap). Return None if it does not, or if that is not certain.

    Args:
        score_mod: a function of the score and its batch, head, query and key indices.
        dtype: the dtype of the score.
    """
    score, batch, head, query, key = torch.tensor(0.5, dtype=dtype), *(torch.tensor(0) for _ in range(4))
    dataflow = _Dataflow(
        [(score, ScorePath()), (batch, None), (head, Known.BY_OFFSET), (query, Index(query=1)), (key, Index(key=1))]
    )
    try:
        # compiled functions would run unobserved
        with torch.compiler.set_stance("force_eager"), torch.enable_grad(), IndexByTensors(), dataflow:
            result = score_mod(score, batch, head, query, key)
    except Exception:
        # the error is raised again, with its message, when the function is computed
        return None
    kind = dataflow.kind(result)
    if not isinstance(kind, ScorePath) or not kind.is_whole or not dataflow.is_certain:
        return None
    return kind if result.is_floating_point() and not result.dim() else None


class _Dataflow(TorchDispatchMode):
    """A record of the kind of every tensor that is computed within the mode; other tensors are captured."""

    def __init__(self, tensors: list[tuple[Tensor, Traced]]) -> None:
        super().__init__()
        # the tensors are kept, for their identities
        self.kinds = dict[int, tuple[Tensor, Traced]]()
        self.storages = set[int]()
        self.is_certain = True
        for tensor, kind in tensors:
            self._record(tensor, kind)

    def _record(self, tensor: Tensor, kind: Traced) -> None:
        self.kinds[id(tensor)] = tensor, kind
        if kind is not Known.CONSTANT:
            self.storages.add(tensor.untyped_storage().data_ptr())

    def kind(self, value: object) -> Traced:
        """Return the kind of an operator's argument; numbers and captured tensors are constants."""
        if id(value) in self.kinds:
            return self.kinds[id(value)][1]
        # an alias that no operator made, such as `tensor.data`
        is_alias = isinstance(value, Tensor) and value.untyped_storage().data_ptr() in self.storages
        return None if is_alias else Known.CONSTANT

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call an operator, and record what its result depends on."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        inputs, outputs = tree_leaves((args, kwargs)), tree_leaves(result)
        is_pure = not func._schema.is_mutable and torch.Tag.nondeterministic_seeded not in func.tags
        # what the function does next may depend on a number that it reads
        reads_number = any(id(value) in self.kinds for value in inputs) and not all(
            isinstance(value, Tensor) for value in outputs
        )
        # the score's gradient would be lost
        has_no_grad = not torch.is_grad_enabled() and any(isinstance(self.kind(value), ScorePath) for value in inputs)
        if not is_pure or reads_number or has_no_grad:
            self.is_certain = False
        kind = self._kind_of_result(func, args, kwargs, inputs, result)
        for tensor in outputs:
            if isinstance(tensor, Tensor):
                self._record(tensor, kind)
        return result

    def _kind_of_result(self, func: Any, args: Any, kwargs: Any, inputs: list[Any], result: Any) -> Traced:
        kinds = [self.kind(value) for value in inputs]
        if all(isinstance(kind, Known) for kind in kinds):
            return Known.CONSTANT if all(kind is Known.CONSTANT for kind in kinds) else Known.BY_OFFSET
        if kwargs or None in kinds:
            return None
        if any(isinstance(kind, ScorePath) for kind in kinds):
            return self._kind_of_score(func, args)
        return self._kind_of_index(func, args, result)

    def _kind_of_index(self, func: Any, args: Any, result: Any) -> Traced:
        """Return the kind of sums and comparisons of indices, which are exact in 64-bit whole numbers."""
        if func not in SUMS | COMPARISONS or any(
            isinstance(value, Tensor) and value.dtype != torch.int64 for value in args
        ):
            return None
        (query, key), (other_query, other_key) = (_factors(self.kind(value)) for value in args)
        sign = 1 if func is aten.add.Tensor else -1
        query, key = query + sign * other_query, key + sign * other_key
        if query + key == 0:
            return Known.BY_OFFSET
        return Index(query, key) if func in SUMS and result.dtype == torch.int64 else None

    def _kind_of_score(self, func: Any, args: Any) -> Traced:
        """Return the kind of an operator's result for one score and known values."""
        kinds = [self.kind(value) for value in args]
        index, score = next((index, kind) for index, kind in enumerate(kinds) if isinstance(kind, ScorePath))
        rest = [*args[:index], *args[index + 1 :]]
        if not all(isinstance(self.kind(value), Known) for value in rest):
            return None
        is_first, number = index == 0, rest[0] if rest and isinstance(rest[0], int | float) else 0.0
        if score.is_whole:
            is_sum = func is aten.add.Tensor or (func is aten.sub.Tensor and is_first)
            is_choice = func in FILLS if is_first else func is aten.where.self
            if is_sum or (is_choice and self._hides(rest[-1])):
                return replace(score, state="sum")
        if func is aten.div.Tensor and not score.state and is_first and 0 < number < torch.inf:
            return ScorePath("divided", float(number))
        if func is aten.tanh.default and score.state == "divided":
            return replace(score, state="tanh")
        if func is aten.mul.Tensor and score.state == "tanh" and number == score.soft_cap:
            return replace(score, state="capped")
        return None

    def _hides(self, value: Any) -> bool:
        """Return whether a value is −∞ for all pairs."""
        if isinstance(value, Tensor):
            return self.kind(value) is Known.CONSTANT and not value.dim() and float(value.detach()) == -torch.inf
        return value == -torch.inf


def _factors(kind: Traced) -> tuple[int, int]:
    """Return the factors of a value's query and key index; zeros for a function of head and offset."""
    return (kind.query, kind.key) if isinstance(kind, Index) else (0, 0)
