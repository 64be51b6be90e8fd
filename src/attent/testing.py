"""check_part: whether a score, normaliser, mask, position or weighting of one's own holds what attention asks of its slot."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attent.attention import AttentionMap, attend, choices, prepare
from attent.attention.checks import row_sums
from attent.attention.kernels.rows import some
from attent.attention.masks import Table
from attent.attention.parts import Mask, Normaliser, Pairs, Position, Score, Weighting
from attent.errors import ArgumentError, PartError, ShapeError

Part = Score | Normaliser | Mask | Position | Weighting | nn.Module | Callable[[Tensor, Tensor], Tensor]
# What may differ by rounding in float64, and by central differences of such a step.
CLOSE, STEP, SLOPES = 1e-8, 1e-6, 1e-4


@torch.enable_grad()
def check_part(
    part: Part, *, batch: int = 2, heads: int | None = None, queries: int = 5, keys: int = 7, width: int = 4, key_width: int | None = None
) -> None:
    """Raise where a part does not hold what its slot asks; return where it does.

    A part is tried in float64 on small random tensors, by itself and in `attend` by the formula and by tiles: shapes and dtypes;
    gradients against differences; that tiles, batch neighbours and the order of keys change nothing; that what is hidden has weight
    zero and leaks nothing, NaN included; queries that see nothing; lowered forms; what a mask says of its span, reach and seen
    keys; what a normaliser says of its rows; memory.

    Args:
        part: an instance, or a function (query, key) → scores. A module is copied, not changed.
        batch: B.
        heads: H; those of the part if not given, else 3.
        queries: Tq; a mask or weighting that holds tensors is tried at their sizes.
        keys: Tk.
        width: Dq; that of the part if it was made for one.
        key_width: Dk; Dq if not given.

    Raises:
        PartError: a check does not hold; the message names it, with figures.
        ArgumentError: it is no part.
        ShapeError: it was made for other sizes.
    """
    if isinstance(part, type | str):
        raise ArgumentError(f"check_part needs a part itself, such as an instance, got {part!r}")
    if isinstance(part, nn.Module):
        part = copy.deepcopy(part).double()
    if not isinstance(part, Normaliser | Mask | Position | Weighting):
        part = choices.score(part)
    slot = next(slot for slot, kind in SLOTS.items() if isinstance(part, kind[0]))
    own_width, own_key_width = getattr(part, "widths", None) or (width, width if key_width is None else key_width)
    trial = _Trial(slot, part, batch, heads or getattr(part, "heads", None) or 3, queries, keys, own_width, own_key_width)
    if slot != "normaliser":
        trial.prepared()
    with trial.own_errors():
        SLOTS[slot][1](trial)
        _in_attention(trial)


class _Sizes(TorchDispatchMode):
    """Remembers the most numbers that a tensor had."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        # an expanded axis takes no memory
        sizes = [leaf.untyped_storage().nbytes() // leaf.element_size() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.largest = max(self.largest, *sizes, 0)
        return result


@dataclass(frozen=True)
class _Trial:
    slot: str
    part: Any
    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    key_width: int
    dice: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    def drawn(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.dice, dtype=torch.float64)

    def sides(self, queries: int | None = None, keys: int | None = None) -> tuple[Tensor, Tensor]:
        shape = self.batch, self.heads
        return self.drawn(*shape, queries or self.queries, self.width), self.drawn(*shape, keys or self.keys, self.key_width)

    def prepared(self, queries: int | None = None, keys: int | None = None, **arguments: Any) -> Any:
        """The call that `attend` makes of the part."""
        query, key = self.sides(queries, keys)
        return prepare(
            query, key, self.drawn(self.batch, self.heads, key.shape[2], 3), **({"score": _product, self.slot: self.part} | arguments)
        )

    def fail(self, what: str) -> None:
        raise PartError(f"{self.slot} {type(self.part).__name__}: {what}")

    @contextmanager
    def own_errors(self) -> Iterator[None]:
        """What a part itself raises, as an error of the part."""
        try:
            yield
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
            raise PartError(
                f"{self.slot} {type(self.part).__name__} raises {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            ) from error

    def shaped(self, what: str, tensor: Any, shape: tuple[int, ...], dtype: torch.dtype | None = torch.float64) -> Tensor:
        """The tensor, broadcast to a shape."""
        if not isinstance(tensor, Tensor):
            self.fail(f"{what} must be a tensor, got {type(tensor).__name__}")
        if dtype is not None and tensor.dtype != dtype:
            self.fail(f"{what} must be {dtype}, got {tensor.dtype}")
        if tensor.dim() != len(shape) or any(have not in (1, need) for have, need in zip(tensor.shape, shape, strict=True)):
            self.fail(f"{what} must broadcast to {shape}, got {tuple(tensor.shape)}")
        return tensor.expand(shape)

    def same(self, what: str, found: Tensor, expected: Tensor, tolerance: float = CLOSE) -> None:
        if not torch.allclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True):
            self.fail(f"{what}: they differ by up to {float((found - expected).abs().max()):.3g}")

    def grows(self, what: str, work: Callable[[int], object]) -> None:
        """Raise where what one row takes grows with the square of the keys."""
        most = []
        for keys in (128, 256):
            with torch.no_grad(), _Sizes() as sizes:
                try:
                    work(keys)
                except ShapeError:
                    return  # it was made for some sizes alone
            most.append(sizes.largest)
        if most[1] > 3 * most[0]:
            self.fail(f"{what} must grow linearly with the keys, but a tensor of {most[0]} numbers for 128 keys has {most[1]} for 256")


def _score(trial: _Trial) -> None:
    score: Score = trial.part
    query, key = trial.sides()
    shape = trial.batch, trial.heads, trial.queries, trial.keys
    expected = score(query, key)
    if not isinstance(expected, Tensor) or tuple(expected.shape) != shape:
        trial.fail(f"forward must return (B, H, Tq, Tk) = {shape}, got {tuple(getattr(expected, 'shape', ()))}")
    trial.shaped("forward of float64", expected, shape)
    name, last = list(score.steps(query, key).items())[-1]
    if name != "scores":
        trial.fail(f"its steps must end in 'scores', got {name!r}")
    trial.same("the last of its steps must be what forward returns", last, expected)
    theirs = score.lower_key(key)
    ours = score.lower_query(query, theirs.origin)
    trial.same("between of the lowered sides must be what forward returns", score.between(ours, theirs), expected)
    later = trial.keys // 2
    tail = score.lower_later_key(key[:, :, later:], later, theirs.origin)
    trial.same("lower_later_key must lower keys as lower_key does among others", score.between(ours, tail), expected[..., later:])
    rows, columns = torch.arange(1, trial.queries, 2), torch.arange(0, trial.keys, 2)
    part = score.between(some(ours, rows), some(theirs, columns))
    trial.same("a pair's score must depend on its query and key alone", part, expected[:, :, rows][..., columns])
    alone = score.between(ours.through(lambda one: one[:1]), theirs.through(lambda one: one[:1]))
    trial.same("a sequence's scores must not depend on its batch neighbours", alone, expected[:1])
    if score.maximum_length is None:
        order = torch.randperm(trial.keys, generator=trial.dice)
        trial.same("in another order of the keys the scores must be the same", score(query, key[:, :, order]), expected[..., order])
    trial.grows(
        "a row's scores", lambda keys: score(*(side[:, :, : 1 if place == 0 else keys] for place, side in enumerate(trial.sides(1, keys))))
    )


def _normaliser(trial: _Trial) -> None:
    normaliser: Normaliser = trial.part
    scores = trial.drawn(trial.batch, trial.heads, trial.queries, trial.keys)
    weights = trial.shaped("weights of float64 scores", normaliser(scores), tuple(scores.shape))
    if weights.shape != normaliser(scores).shape:
        trial.fail(f"weights must be (B, H, Tq, Tk) = {tuple(scores.shape)}, got {tuple(normaliser(scores).shape)}")
    trial.same("a row's weights must depend on the row alone", normaliser(scores[:1, :, 1:2]), weights[:1, :, 1:2])
    order = torch.randperm(trial.keys, generator=trial.dice)
    trial.same("in another order of the keys the weights must be the same", normaliser(scores[..., order]), weights[..., order])
    if normaliser.shift_invariant:
        trial.same("it says shift_invariant, and its weights change when 3 is added to all scores", normaliser(scores + 3.0), weights)
    allowed = torch.rand(scores.shape, generator=trial.dice) < 0.6
    allowed[..., 0, :], allowed[..., 1:, 0] = False, True
    seen = normaliser(scores, allowed)
    if seen[~allowed].count_nonzero():
        trial.fail(f"a hidden pair must have weight zero, got up to {float(seen[~allowed].abs().max()):.3g}")
    for garbage in (1e6, torch.nan):
        spoilt = normaliser(scores.masked_fill(~allowed, garbage), allowed)
        trial.same(f"the weights must not depend on hidden scores, of which {garbage} was made", spoilt, seen, 0.0)
    if normaliser.distribution:
        for name, some_weights in (("", weights), (" of what is seen", seen[..., 1:, :])):
            low, high, least = row_sums(some_weights)
            if max(1.0 - low, high - 1.0, -least) > CLOSE:
                trial.fail(f"it says distribution, but its rows{name} sum to {low:.4g} to {high:.4g}, with a least weight of {least:.4g}")
    trial.grows("a row's weights", lambda keys: normaliser(trial.drawn(1, 1, 1, keys)))


def _tile(trial: _Trial, what: str, table: Callable[[Pairs], Tensor], dtype: torch.dtype | None) -> Tensor:
    """What a part says of all pairs, (B, H, Tq, Tk), checked against what it says of some of them."""
    call, shape = trial.prepared().call, (trial.batch, trial.heads, trial.queries, trial.keys)
    whole = trial.shaped(what, table(call.pairs()), shape, dtype)
    rows, columns = torch.arange(1, trial.queries, 2), torch.arange(0, trial.keys, 2)
    part = trial.shaped(f"{what} of some pairs", table(call.pairs(rows, columns)), (*shape[:2], len(rows), len(columns)), dtype)
    same = whole[:, :, rows][..., columns]
    trial.same(f"{what} of some rows and keys must be those of all", part.double(), same.double())
    trial.grows(f"{what} of one row", lambda keys: table(trial.prepared(keys, keys).call.pairs(torch.arange(1))))
    return whole


def _mask(trial: _Trial) -> None:
    mask: Mask = trial.part
    allowed, pairs = _tile(trial, "allowed", mask.allowed, torch.bool), trial.prepared().call.pairs()
    for name, ends in (("span", mask.span(pairs)), ("reach", mask.reach(pairs))):
        if ends is None:
            continue
        within = (pairs.columns >= ends[0]) & (pairs.columns <= ends[1])
        if (allowed & ~within).any():
            trial.fail(f"{name} leaves out {int((allowed & ~within).sum())} of {int(allowed.sum())} pairs that may attend")
        if name == "span" and (within & ~allowed).any():
            trial.fail(f"span holds {int((within & ~allowed).sum())} pairs that may not attend; what has gaps has a reach")
    for rows in (torch.arange(trial.queries), torch.arange(1)):
        seen = mask.seen(trial.prepared().call.pairs(rows))
        if seen is not None and (allowed[:, :, rows] & ~trial.shaped("seen", seen, (trial.keys,), torch.bool)).any():
            trial.fail("seen leaves out keys that one of its queries may see")
    for sequence in range(trial.batch if mask.splits else 0):
        needed = int(allowed[sequence].any(0).any(0).cumsum(0).argmax()) + 1
        alone, left = mask.alone(sequence, needed), allowed[sequence : sequence + 1, ..., :needed]
        found = torch.ones_like(left) if alone is None else alone.allowed(replace(pairs, columns=pairs.columns[:needed])).expand_as(left)
        trial.same(f"alone must say the same of sequence {sequence}", found.double(), left.double())


def _position(trial: _Trial) -> None:
    position: Position = trial.part
    if not (position.turns or position.biases):
        trial.fail("it must say turns or biases")
    if position.biases:
        bias = _tile(trial, "bias", position.bias, None)
        if not bias.is_floating_point() or not bias.isfinite().all():
            trial.fail(f"bias must be finite numbers, got {bias.dtype}")
    if position.turns:
        features, places = trial.sides()[0], torch.arange(trial.queries)[None]
        turned = position.turn(features, places)
        trial.shaped("turn of float64", turned, tuple(features.shape))
        part = position.turn(features[:1, :, 1::2], places[:, 1::2])
        trial.same("a token must turn by its own position, whatever its neighbours", part, turned[:1, :, 1::2])


def _weighting(trial: _Trial) -> None:
    factors = _tile(trial, "factors", trial.part.factors, None)
    if not factors.isfinite().all() or (factors < 0).any():
        trial.fail(f"factors must be finite and ≥ 0, got {float(factors.min()):.3g} to {float(factors.max()):.3g}")


def _in_attention(trial: _Trial) -> None:
    """Contexts and gradients in `attend`, where one key is hidden from all, and one query sees nothing."""
    table = torch.ones(trial.queries, trial.keys, dtype=torch.bool)
    table[:, -1], table[0] = False, False
    mask = trial.part & Table(table) if trial.slot == "mask" else Table(table)
    call, query, (key, *_), value = trial.prepared(mask=mask)
    allowed = call.allowed(call.pairs()).expand(trial.batch, trial.heads, trial.queries, trial.keys)
    named = trial.part.named_parameters() if isinstance(trial.part, nn.Module) else ()
    parameters: dict[str, Tensor] = {name: one for name, one in named if one.requires_grad}
    ahead = trial.drawn(trial.batch, trial.heads, trial.queries, 3)
    arguments: dict[str, Any] = {"score": _product, trial.slot: trial.part} | {"mask": mask}

    def outcome(key: Tensor, value: Tensor, implementation: str) -> dict[str, Tensor]:
        leaves = {"query": query, "key": key, "value": value}
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in leaves.items()} | parameters
        context = attend(*list(leaves.values())[:3], **arguments, implementation=implementation)
        gradients = torch.autograd.grad((context * ahead).sum(), list(leaves.values()), materialize_grads=True)
        return {"context": context.detach()} | {f"the gradient of {name}": one for name, one in zip(leaves, gradients, strict=True)}

    hidden, dead = ~allowed.any(-2)[..., None], ~allowed.any(-1)
    for implementation in ("formula", "tiled"):
        found = outcome(key, value, implementation)
        if found["context"][dead].count_nonzero():
            trial.fail(f"a query that may see nothing must get zeros, by {implementation}")
        for name, tensor in found.items():
            if not tensor.isfinite().all():
                trial.fail(f"{name} must be finite where a query may see nothing, by {implementation}")
        spoilt = outcome(key.masked_fill(hidden, torch.nan), value.masked_fill(hidden, torch.nan), implementation)
        for name, tensor in found.items():
            trial.same(
                f"{name} must not depend on a key that no query sees, of which NaN was made, by {implementation}", spoilt[name], tensor, 0.0
            )
        for name, tensor in outcome(key, value, "formula").items():
            trial.same(f"{name} must be the formula's, by {implementation}", found[name], tensor)
    weights = AttentionMap.of(prepare(query, key, value, **arguments)).dense()
    if weights[~allowed].count_nonzero():
        trial.fail(f"a hidden pair must have weight zero, got up to {float(weights[~allowed].abs().max()):.3g}")
    _differences(trial, query, key, value, parameters, ahead, arguments)


def _product(query: Tensor, key: Tensor) -> Tensor:
    """A score of any two widths."""
    return query.mean(-1)[..., None] * key.mean(-1)[..., None, :]


def _differences(
    trial: _Trial, query: Tensor, key: Tensor, value: Tensor, parameters: dict[str, Tensor], ahead: Tensor, arguments: dict[str, Any]
) -> None:
    """Gradients against central differences along a random direction of each tensor."""
    leaves = {"query": query.requires_grad_(), "key": key.requires_grad_(), "value": value.requires_grad_()} | parameters

    def loss() -> Tensor:
        return (attend(query, key, value, **arguments, implementation="formula") * ahead).sum()

    gradients = torch.autograd.grad(loss(), list(leaves.values()), materialize_grads=True)
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        direction = trial.drawn(*leaf.shape)
        with torch.no_grad():
            around = []
            for step in (STEP, -STEP):
                leaf.add_(direction, alpha=step)
                around.append(float(loss()))
                leaf.add_(direction, alpha=-step)
        slope, found = (around[0] - around[1]) / (2 * STEP), float((gradient * direction).sum())
        if abs(found - slope) > SLOPES * max(1.0, abs(slope)):
            trial.fail(
                f"the gradient of {name} must be that of differences: along a random direction {found:.6g}, by differences {slope:.6g}"
            )


SLOTS: dict[str, tuple[type, Callable[[_Trial], None]]] = {
    "normaliser": (Normaliser, _normaliser),
    "mask": (Mask, _mask),
    "position": (Position, _position),
    "weighting": (Weighting, _weighting),
    "score": (Score, _score),
}
