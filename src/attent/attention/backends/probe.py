"""Trial runs of a score on a few rows: its memory per pair, and the leaves that it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from attent.attention.backends import row_tiles as by_rows
from attent.attention.backends.block_sparse import Band
from attent.attention.base import LoweredSide
from attent.attention.call import Call
from attent.ops.eligibility import can_run_custom_function


def per_pair(call: Call, lowered: by_rows.Lowered) -> int | None:
    """Measure the numbers in memory per pair while a score is computed; None if the score says it, or it cannot be measured.

    By what is kept for a backward: of three rows against two, so that what is made of the keys alone does not count.
    """
    if call.score.form is not None or call.queries < 3 or not call.keys:
        return None
    if torch.is_inference_mode_enabled() or not can_run_custom_function():
        return None
    with _as_before(call.device):
        two, three = (_kept(call, lowered, rows) for rows in (2, 3))
    return max(round((three - two) / (call.batch * call.heads * call.keys)), 1)


def _kept(call: Call, lowered: by_rows.Lowered, rows: int) -> int:
    query, key = (side.map(lambda part: part.detach().requires_grad_()) for side in (lowered.query, lowered.key))
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        scores = call.score.score_lowered(by_rows.some(query, slice(0, rows)), key)
    given = {part.untyped_storage().data_ptr() for side in (query, key) for part in side if part is not None}
    del scores
    return sum(numbers for storage, numbers in storages.items() if storage not in given)


def besides(
    tile: Callable[[LoweredSide, LoweredSide, Tensor, Band], Tensor], call: Call, lowered: by_rows.Lowered, band: Band
) -> list[Tensor] | None:
    """The leaves, other than the lowered sides, that a tile's gradients go to; None where more than they can reach must be gone through.

    A score may have captured what was computed of a leaf before, or throw dice, which a second computation must throw again.
    """
    few = Band(band.rows[:1], band.keys)
    query, key, value = lowered.query.map(Tensor.detach), lowered.key.map(Tensor.detach), lowered.value.detach()
    before = torch._C._autograd._get_sequence_nr()  # pyright: ignore[reportAttributeAccessIssue]
    with _as_before(call.device) as thrown, torch.enable_grad():
        context = tile(by_rows.some(query, few.own), by_rows.some(key, few.key_slice), value[:, :, few.key_slice], few)
        if thrown():
            return None
    return _leaves(context, before)


def _leaves(context: Tensor, before: int) -> list[Tensor] | None:
    """The leaves a tensor was computed of; None where the way leads through what was computed `before`."""
    found: dict[int, Tensor] = {}
    ahead, known = [context.grad_fn], set[Any]()
    while ahead:
        node = ahead.pop()
        if node is None or node in known:
            continue
        known.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            found[id(leaf)] = leaf
        elif node._sequence_nr() < before:
            return None
        else:
            ahead.extend(nearer for nearer, _ in node.next_functions)
    return list(found.values())


@contextmanager
def _as_before(device: torch.device) -> Iterator[Callable[[], bool]]:
    """Leave the dice as they are; what it gives tells whether any were thrown."""
    lowered_query, lowered_key = torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def thrown() -> bool:
        same = torch.equal(torch.get_rng_state(), lowered_query)
        return not same or (lowered_key is not None and not torch.equal(torch.cuda.get_rng_state(device), lowered_key))

    try:
        yield thrown
    finally:
        torch.set_rng_state(lowered_query)
        if lowered_key is not None:
            torch.cuda.set_rng_state(lowered_key, device)
