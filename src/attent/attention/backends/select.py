"""The plan of a call, and the table of measured thresholds.

"auto" uses the thresholds to skip backends that could serve a call but are slower. A backend requested by name ignores
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from attent.attention import mask_info
from attent.attention.backends import bands, heuristics
from attent.attention.base import LoweredSide
from attent.attention.call import Call, Prepared
from attent.attention.normalizers.softmax import Softmax
from attent.errors import ImplementationError, UnknownNameError
from attent.ops.eligibility import is_exporting, is_transformed, needs_plain_torch

# PyTorch's CPU kernel takes 3 to 10 times as long for gradients in 16 bits as in 32 below this many keys; measured with
# torch 2.13 on 2 cores with AVX-512: 30 ms against 3 at 14 keys, 10.6 against 2.4 at 64, 17.7 against 20.2 at 256, 45
# against 75 at 2048.
SIXTEEN_BIT_GRADIENTS = 256
# PyTorch's attention computes all pairs, or half of them for a causal mask alone. Tiles skip hidden pairs, which on a
# CPU pays off if less than this share of the pairs is left and all heads together have at least this many pairs; at
# 8,192 keys and a window of 128, they take 90 ms, and dense attention, which skips them too, 21.
SPARSE, MANY = 0.5, 2**20
# If a mask leaves a few scattered keys, tiles of those beat a table of all pairs if less than this share of the pairs
# is left and a head has at least this many pairs: at 4,096 keys 21 and 26 ms against 67 and 70, at 16,384 keys 108 and
# 130 against 987 and 1,119.
SCATTERED, TABLE = 0.125, 2**24
# Computing the exponentials of every key pays off from this many queries on: at 1 query and 15 keys of 512 features,
# 136 sequences, the formula took 22 ms with gradients and the fused form 31, at 4 queries 58 and 37.
FEW = 4
# Break-even padding for computing sequences one by one: the average number of padding elements per sequence that cost
# as much as one more call, for each form of score; measured on a CPU with and without gradients. An element of a dot
# form is a pair's score, one of a tanh form is a feature of a pair.
VARLEN_PADDING = {"dot": 2**18, "tanh": 2**21}


def _dense_keys(call: Call) -> int | None:
    """Return the largest number of keys for which dense attention is faster than PyTorch's on this machine.

    None for any number.
    """
    if call.dropout or call.soft_cap is not None or call.position is not None:
        # PyTorch computes a table for dropout, and has no soft cap and no bias of position
        return None
    with_gradients = torch.is_grad_enabled()
    limit = heuristics.dense_keys(call.dtype, with_gradients, with_table=True)
    if limit is None or call.keys <= limit or call.bias is not None or mask_info.needs_table(call):
        return limit
    limit = heuristics.dense_keys(call.dtype, with_gradients, with_table=False)
    # dense attention skips the pairs that ranges hide, PyTorch's does not
    return None if limit and bands.is_worthwhile(call, SPARSE, MANY) else limit


def missing_capability(call: Call, capabilities: frozenset[str]) -> str | None:
    """Return what a call needs beyond softmax of biased and masked scores and these capabilities; None if nothing.

    Args:
        call: the call.
        capabilities: of "soft cap", "position bias", "bias", "sink", "dropout" and "gpu".
    """
    if not isinstance(call.normalizer, Softmax):
        return f"its normalizer is softmax, not {type(call.normalizer).__name__}"
    if call.score_mod is not None:
        return "it has no function of the scores"
    if call.sink is not None and "sink" not in capabilities:
        return "it has no sink"
    if call.soft_cap is not None and "soft cap" not in capabilities:
        return "it has no soft cap"
    if call.dropout and "dropout" not in capabilities:
        return "its dropout is not a function of (seed, b, h, i, j)"
    if call.weighting is not None:
        return "its weights are not multiplied after normalization"
    if call.position is not None and "position bias" not in capabilities:
        return f"it has no position bias, which {type(call.position).__name__} adds"
    if call.bias is not None and "bias" not in capabilities:
        return "it has no bias"
    return "it runs on a CPU" if call.device.type != "cpu" and "gpu" not in capabilities else None


def has_open_sizes(call: Call) -> bool:
    """Return whether a graph is exported with sizes that are known only when it runs."""
    sizes = call.batch, call.queries, call.keys
    return is_exporting() and any(isinstance(size, torch.SymInt) for size in sizes)


def reason_to_skip(name: str, call: Call) -> str | None:
    """Return why "auto" skips a backend at these shapes; None if it does not."""
    if name == "tanh" and is_exporting():
        return "an exported graph holds PyTorch's operators alone"
    if has_open_sizes(call):
        # sizes that are still open cannot be compared with a threshold
        return None
    if name == "reference" and bands.numbers_per_row(call) * call.queries > bands.WHOLE * bands.TILE:
        return "it would hold the whole table of scores, which tiles do not"
    if name == "dense" and call.queries == 1:
        return "a single query does not fill its registers"
    if name == "dense" and (limit := _dense_keys(call)) is not None and call.keys > limit:
        return f"PyTorch is faster beyond {limit} keys by the machine row {heuristics.current_row().name!r}"
    if name == "dense" and _has_few_scattered_pairs(call):
        return "its table of all pairs would take longer than tiles of the few that attend"
    if name == "tanh" and needs_plain_torch():
        return "functional derivatives need plain PyTorch, which is left to tiles"
    if name == "tanh" and call.queries < FEW:
        return f"its exponentials of every key do not pay off for fewer than {FEW} queries"
    if name == "sdpa" and bands.is_worthwhile(call, SPARSE, MANY):
        return "it would compute the pairs that the mask hides, which tiles skip"
    return None


def _has_few_scattered_pairs(call: Call) -> bool:
    """Return whether a mask that only a table describes hides nearly all of many pairs."""
    is_large = call.queries * call.keys >= TABLE
    return is_large and mask_info.needs_table(call) and bands.is_worthwhile(call, SCATTERED, TABLE)


class Variant(NamedTuple):
    """A leaf path of a backend.

    It has a name, and a function that computes the context of a call from the values prepared for this path.
    """

    name: str
    run: Callable[[Call, Tensor, LoweredSide, Tensor], Tensor]


@dataclass(frozen=True)
class Plan:
    """The computation of a call.

    It is one variant of one backend, for the whole batch or for each sequence with the keys that it needs.
    """

    backend: str
    # "varlen" if each sequence is computed separately, with its own plan
    variant: Variant
    # why each other backend does not run, if requested
    reasons: Mapping[str, str]


def plan(
    prepared: Prepared, backends: Mapping[str, ModuleType], implementation: str = "auto", *, with_reasons: bool = False
) -> Plan:
    """Choose how to compute a call: `attend` runs the plan, `explain` prints it.

    Args:
        prepared: the call and its tensors.
        backends: the backends by name, in order of preference. A backend with several leaf paths provides
            `choose(prepared)`; the others provide `run`.
        implementation: a backend's name, or "auto".
        with_reasons: whether to include why the others do not run.

    Raises:
        UnknownNameError: there is no such backend.
        ImplementationError: the requested backend cannot serve this call.
    """
    call = prepared.call

    def objection(name: str) -> str | None:
        return backends[name].unsupported(call) or reason_to_skip(name, call)

    name = implementation
    if name == "auto":
        name = next(name for name in backends if objection(name) is None)
    elif name not in backends:
        raise UnknownNameError("implementation", implementation, ("auto", *backends))
    elif reason := backends[name].unsupported(call):
        raise ImplementationError(f"implementation {implementation!r} cannot serve this call: {reason}")
    others = [key for key in backends if key != name] if with_reasons else []
    reasons = {key: objection(key) or f"{name} takes precedence" for key in others}
    return Plan(name, _variant_of_backend(prepared, backends, name, implementation), reasons)


def varlen_key_counts(call: Call) -> list[int] | None:
    """Return the number of keys that each sequence needs; None if the batch is computed as a whole."""
    if (
        call.mask is None
        or call.batch < 2
        or call.device.type != "cpu"
        or call.dropout
        or call.weighting
        or call.score_mod
    ):
        return None
    # a custom score or normalizer may depend on all pairs
    if (
        call.score.form is None
        or not isinstance(call.normalizer, Softmax)
        or is_transformed()
        or torch.compiler.is_compiling()
    ):
        return None
    numbers, worth = bands.numbers_per_row(call) * call.queries, VARLEN_PADDING[call.score.form] * call.batch
    if numbers < worth:
        return None
    bounds = None if mask_info.needs_table(call) else mask_info.key_bounds(call)
    if bounds is None or len(bounds[1]) < call.batch:
        return None
    ends = bounds[1].amax((1, 2))
    saved = numbers * (1 - float(ends.sum()) / (call.batch * call.keys))
    return ends.tolist() if saved >= worth else None


def _variant_of_backend(
    prepared: Prepared, backends: Mapping[str, ModuleType], backend: str, implementation: str
) -> Variant:
    if (key_counts := varlen_key_counts(prepared.call)) is not None:

        def run_sequence(sequence: Prepared) -> Tensor:
            return plan(sequence, backends, implementation).variant.run(*sequence)

        return Variant("varlen", partial(run_sequences, key_counts=key_counts, run_sequence=run_sequence))
    choose = getattr(backends[backend], "choose", None)
    return Variant("batch", backends[backend].run) if choose is None else choose(prepared)


def run_sequences(
    call: Call,
    query: Tensor,
    key: LoweredSide,
    value: Tensor,
    *,
    key_counts: list[int],
    run_sequence: Callable[[Prepared], Tensor],
) -> Tensor:
    """Compute the context, (B, H, Tq, Dv), of each sequence separately, with the keys that it needs."""
    contexts, bounds = [], mask_info.key_bounds(call)
    assert bounds is not None
    sides = zip(*(part.split(1) if part is not None else [None] * call.batch for part in key), strict=True)
    tensors = zip(query.split(1), sides, value.split(1), key_counts, strict=True)
    for sequence, (queries, (features, bias, center), values, keys) in enumerate(tensors):
        if not keys:
            contexts.append(values.new_zeros(1, call.heads, call.queries, call.value_width, dtype=call.dtype))
            continue
        side = LoweredSide(features[:, :, :keys], None if bias is None else bias[:, :, :keys], center)
        own = _call_for_sequence(call, sequence, keys, *bounds)
        contexts.append(run_sequence(Prepared(own, queries, side, values[:, :, :keys])))
    return torch.cat(contexts)


def _call_for_sequence(call: Call, sequence: int, keys: int, begin: Tensor, end: Tensor) -> Call:
    """Return the call of one sequence, given the bounds of all."""
    bias, start = call.bias, call.start
    begin, end = (bound[sequence : sequence + 1] if len(bound) > 1 else bound for bound in (begin, end))
    if bias is not None:
        bias = bias[sequence : sequence + 1] if len(bias) > 1 else bias
        bias = bias[..., :keys] if bias.shape[3] > 1 else bias
    if isinstance(start, Tensor):
        start = int(start[sequence] if len(start) > 1 else start)
    mask = mask_info.mask_for_sequence(begin, end, keys)
    return replace(call, mask=mask, bias=bias, start=start, batch=1, keys=keys, axes=4)
