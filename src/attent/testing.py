"""check_part: test that a custom score, normalizer, mask, position or weighting fulfills the contract of its slot."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from attent.attention import attend, choices, prepare
from attent.attention.backends.bands import select_tokens
from attent.attention.base import Mask, Normalizer, Pairs, Position, Score, Weighting
from attent.attention.call import Prepared
from attent.attention.masks import Table
from attent.errors import PartError, refuse

Part = Score | Normalizer | Mask | Position | Weighting | nn.Module | Callable[[Tensor, Tensor], Tensor]
# Tolerance for rounding in float64.
CLOSE = 1e-8
# Step of central differences, and the tolerance of gradients against them.
STEP, SLOPES = 1e-6, 1e-4
SIDES = ("query", "key", "value")


@torch.enable_grad()
def check_part(
    part: Part,
    *,
    batch: int = 2,
    heads: int | None = None,
    queries: int = 5,
    keys: int = 7,
    width: int = 4,
    key_width: int | None = None,
) -> None:
    """Check that a part fulfills the contract of its slot.

    The checks run in float64 on small random tensors, on the part alone and in `attend`, by the formula and by tiles:
    shapes and dtypes; gradients against differences; that tiles, batch neighbors and the order of keys do not change
    the result; that hidden keys have weight zero and cannot leak, even as NaN; queries that may attend to no key;
    lowered forms; a mask's key range and visible keys; a normalizer's `shift_invariant` and `is_distribution`.

    Args:
        part: an instance, or a function (query, key) → scores. A module is copied, not changed.
        batch: B.
        heads: H; by default the part's own number, else 3.
        queries: Tq; for a mask or weighting that holds tensors, their size.
        keys: Tk.
        width: Dq; ignored for a part that has its own width.
        key_width: Dk; Dq by default.

    Raises:
        PartError: a check fails; the message names it, with numbers.
        ArgumentError: the argument is not a part.
        ShapeError: the part was made for different sizes.
    """
    refuse((isinstance(part, type | str), f"check_part needs a part, such as an instance, got {part!r}"))
    if isinstance(part, nn.Module):
        part = copy.deepcopy(part).double()
    if not isinstance(part, Normalizer | Mask | Position | Weighting):
        part = choices.score(part)
    slot = next(slot for slot, kind in SLOTS.items() if isinstance(part, kind[0]))
    own_width, own_key_width = getattr(part, "widths", None) or (width, width if key_width is None else key_width)
    trial = _Trial(
        slot, part, batch, heads or getattr(part, "heads", None) or 3, queries, keys, own_width, own_key_width
    )
    if slot != "normalizer":
        trial.prepared()
    try:
        SLOTS[slot][1](trial)
        _in_attention(trial)
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
        message = str(error).partition("\n")[0]
        raise PartError(f"{slot} {type(part).__name__} raises {type(error).__name__}: {message}") from error


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
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    @property
    def pairs(self) -> tuple[int, int, int, int]:
        """The shape of scores, (B, H, Tq, Tk)."""
        return self.batch, self.heads, self.queries, self.keys

    def random(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64)

    def sides(self, queries: int | None = None, keys: int | None = None) -> tuple[Tensor, Tensor]:
        shape = self.batch, self.heads
        return self.random(*shape, queries or self.queries, self.width), self.random(
            *shape, keys or self.keys, self.key_width
        )

    def prepared(self, queries: int | None = None, keys: int | None = None, **arguments: Any) -> Prepared:
        """Return the call that `attend` prepares with the part."""
        query, key = self.sides(queries, keys)
        value = self.random(self.batch, self.heads, key.shape[2], 3)
        return prepare(query, key, value, **({"score": _product, self.slot: self.part} | arguments))

    def fail(self, message: str) -> NoReturn:
        raise PartError(f"{self.slot} {type(self.part).__name__}: {message}")

    def shaped(
        self,
        name: str,
        tensor: Any,
        shape: tuple[int, ...],
        dtype: torch.dtype | None = torch.float64,
        *,
        exactly: bool = False,
    ) -> Tensor:
        """Check a tensor, and return it broadcast to a shape."""
        if not isinstance(tensor, Tensor):
            self.fail(f"{name} must be a tensor, got {type(tensor).__name__}")
        if dtype is not None and tensor.dtype != dtype:
            self.fail(f"{name} must be {dtype}, got {tensor.dtype}")
        if exactly and tensor.shape != shape:
            self.fail(f"{name} must be (B, H, Tq, Tk) = {shape}, got {tuple(tensor.shape)}")
        if tensor.dim() != len(shape) or any(
            size not in (1, whole) for size, whole in zip(tensor.shape, shape, strict=True)
        ):
            self.fail(f"{name} must broadcast to {shape}, got {tuple(tensor.shape)}")
        return tensor.expand(shape)

    def equal(self, message: str, tensor: Tensor, expected: Tensor, tolerance: float = CLOSE) -> None:
        """Fail if two tensors differ."""
        tensor, expected = tensor.detach().double(), expected.detach().double()
        if not torch.allclose(tensor, expected, rtol=tolerance, atol=tolerance, equal_nan=True):
            self.fail(f"{message}: they differ by up to {float((tensor - expected).abs().max()):.3g}")


def _score(trial: _Trial) -> None:
    score: Score = trial.part
    query, key = trial.sides()
    expected = trial.shaped("forward of float64", score(query, key), trial.pairs, exactly=True)
    name, last = list(score.steps(query, key).items())[-1]
    if name != "scores":
        trial.fail(f"its steps must end in 'scores', got {name!r}")
    trial.equal("the last of its steps must equal what forward returns", last, expected)
    key_side = score.lower_key(key)
    query_side = score.lower_query(query, key_side.center)
    trial.equal(
        "lower_query and lower_key must give what forward returns", score.score_lowered(query_side, key_side), expected
    )
    rows, columns = torch.arange(1, trial.queries, 2), torch.arange(0, trial.keys, 2)
    part = score.score_lowered(select_tokens(query_side, rows), select_tokens(key_side, columns))
    trial.equal("a pair's score must depend on its query and key alone", part, expected[:, :, rows][..., columns])
    start = trial.keys // 2
    later = score.lower_later_key(key[:, :, start:], start, key_side.center)
    trial.equal(
        "lower_later_key must lower keys as lower_key does in a longer sequence",
        score.score_lowered(query_side, later),
        expected[..., start:],
    )
    first = score.score_lowered(*(side.map(lambda tensor: tensor[:1]) for side in (query_side, key_side)))
    trial.equal("a sequence's scores must not depend on its batch neighbors", first, expected[:1])
    if score.maximum_length is None:
        order = torch.randperm(trial.keys, generator=trial.generator)
        trial.equal(
            "in another order of the keys the scores must be the same",
            score(query, key[:, :, order]),
            expected[..., order],
        )
    if trial.width == trial.key_width:
        # a query equals its own key where both are projected alike
        same = trial.sides(trial.keys)[0].requires_grad_()
        (gradient,) = torch.autograd.grad(score(same, same).sum(), same, materialize_grads=True)
        if not gradient.isfinite().all():
            trial.fail("the gradient must be finite where a query equals a key, as √x is not at 0")


def _normalizer(trial: _Trial) -> None:
    normalizer: Normalizer = trial.part
    scores = trial.random(*trial.pairs)
    weights = trial.shaped("weights of float64 scores", normalizer(scores), trial.pairs, exactly=True)
    trial.equal("a row's weights must depend on the row alone", normalizer(scores[:1, :, 1:2]), weights[:1, :, 1:2])
    order = torch.randperm(trial.keys, generator=trial.generator)
    trial.equal(
        "in another order of the keys the weights must be the same", normalizer(scores[..., order]), weights[..., order]
    )
    if normalizer.shift_invariant:
        trial.equal(
            "it declares shift_invariant, but its weights change when 3 is added to all scores",
            normalizer(scores + 3.0),
            weights,
        )
    allowed = torch.rand(scores.shape, generator=trial.generator) < 0.6
    allowed[..., 0, :], allowed[..., 1:, 0] = False, True
    masked = normalizer(scores, allowed)
    if masked[~allowed].count_nonzero():
        trial.fail(f"a hidden pair must have weight zero, got up to {float(masked[~allowed].abs().max()):.3g}")
    for garbage in (1e6, torch.nan):
        replaced = normalizer(scores.masked_fill(~allowed, garbage), allowed)
        trial.equal(f"the weights must not depend on hidden scores that were set to {garbage}", replaced, masked, 0.0)
    if normalizer.is_distribution:
        for name, rows in (("", weights), (" of what is seen", masked[..., 1:, :])):
            sums, smallest = rows.sum(-1), float(rows.min())
            low, high = float(sums.min()), float(sums.max())
            if max(1.0 - low, high - 1.0, -smallest) > CLOSE:
                trial.fail(
                    f"it declares is_distribution, but its rows{name} sum to {low:.4g} to {high:.4g}, with a smallest "
                    f"weight of {smallest:.4g}"
                )


def _tile(trial: _Trial, name: str, table: Callable[[Pairs], Tensor], dtype: torch.dtype | None) -> Tensor:
    """Return a part's table of all pairs, (B, H, Tq, Tk), after checking it against tables of some pairs."""
    call = trial.prepared().call
    whole = trial.shaped(name, table(call.pairs()), trial.pairs, dtype)
    rows, columns = torch.arange(1, trial.queries, 2), torch.arange(0, trial.keys, 2)
    expected = whole[:, :, rows][..., columns]
    part = trial.shaped(f"{name} of some pairs", table(call.pairs(rows, columns)), expected.shape, dtype)
    trial.equal(f"{name} of some rows and keys must equal those of all", part, expected)
    return whole


def _mask(trial: _Trial) -> None:
    mask: Mask = trial.part
    call = trial.prepared().call
    allowed, pairs = _tile(trial, "allowed", mask.allowed, torch.bool), call.pairs()
    key_range = mask.key_range(pairs)
    if key_range is not None:
        within = (pairs.key_index >= key_range.begin) & (pairs.key_index < key_range.end)
        if (allowed & ~within).any():
            trial.fail(
                f"key_range leaves out {int((allowed & ~within).sum())} of {int(allowed.sum())} pairs that may attend"
            )
        if key_range.exact and (within & ~allowed).any():
            trial.fail(
                f"an exact key_range holds {int((within & ~allowed).sum())} pairs that may not attend; one with gaps "
                "is not exact"
            )
    for rows in (torch.arange(trial.queries), torch.arange(1)):
        visible = mask.visible_keys(call.pairs(rows))
        if (
            visible is not None
            and (allowed[:, :, rows] & ~trial.shaped("visible_keys", visible, (trial.keys,), torch.bool)).any()
        ):
            trial.fail("visible_keys leaves out keys that one of its queries may see")


def _position(trial: _Trial) -> None:
    position: Position = trial.part
    if not (position.rotates or position.biases):
        trial.fail("it must set rotates or biases")
    if position.biases:
        bias = _tile(trial, "bias", position.bias, None)
        if not bias.is_floating_point() or not bias.isfinite().all():
            trial.fail(f"bias must be finite numbers, got {bias.dtype}")
        query, key = trial.prepared().call.pairs().broadcast_positions()
        by_offset = position.with_heads(trial.heads).bias_by_offset((key - query).flatten())
        if by_offset is not None:
            by_offset = trial.shaped("bias_by_offset", by_offset, (trial.heads, trial.queries * trial.keys), None)
            trial.equal(
                "bias_by_offset must equal the bias of pairs at that offset",
                by_offset.reshape(bias.shape[1:]),
                bias[0],
            )
    if position.rotates:
        features, positions = trial.sides()[0], torch.arange(trial.queries)[None]
        rotated = trial.shaped("rotation of float64", position.rotate(features, positions), tuple(features.shape))
        part = position.rotate(features[:1, :, 1::2], positions[:, 1::2])
        trial.equal("a token's rotation must depend only on its own position", part, rotated[:1, :, 1::2])


def _weighting(trial: _Trial) -> None:
    factors = _tile(trial, "factors", trial.part.factors, None)
    if not factors.isfinite().all() or (factors < 0).any():
        trial.fail(f"factors must be finite and ≥ 0, got {float(factors.min()):.3g} to {float(factors.max()):.3g}")


def _in_attention(trial: _Trial) -> None:
    """Check contexts and gradients in `attend` with a key hidden from all queries, and a query that sees no key."""
    table = torch.ones(trial.queries, trial.keys, dtype=torch.bool)
    table[:, -1], table[0] = False, False
    mask = trial.part & Table(table) if trial.slot == "mask" else Table(table)
    call, query, (key, *_), value = trial.prepared(mask=mask)
    hidden = ~mask.allowed(call.pairs()).expand(trial.pairs).any(-2)[..., None]
    parameters = dict(trial.part.named_parameters()) if isinstance(trial.part, nn.Module) else {}
    inputs = {"query": query, "key": key, "value": value} | {
        name: tensor for name, tensor in parameters.items() if tensor.requires_grad
    }
    of_context = trial.random(*trial.pairs[:3], 3)

    def context(inputs: dict[str, Tensor], implementation: str) -> Tensor:
        arguments: dict[str, Any] = {"score": _product, trial.slot: trial.part} | {"mask": mask}
        return attend(*list(inputs.values())[:3], **arguments, implementation=implementation)

    def outcome(implementation: str, **others: Tensor) -> dict[str, Tensor]:
        leaves = {
            name: tensor.detach().requires_grad_() if name in SIDES else tensor
            for name, tensor in (inputs | others).items()
        }
        result = context(leaves, implementation)
        gradients = torch.autograd.grad(result, list(leaves.values()), of_context, materialize_grads=True)
        return {"context": result.detach()} | {
            f"the gradient of {name}": tensor for name, tensor in zip(leaves, gradients, strict=True)
        }

    expected = outcome("reference")
    for implementation in ("reference", "tiled"):
        result = outcome(implementation)
        spoilt = outcome(
            implementation, key=key.masked_fill(hidden, torch.nan), value=value.masked_fill(hidden, torch.nan)
        )
        for name, tensor in result.items():
            if not tensor.isfinite().all():
                trial.fail(f"{name} must be finite if a query may see no key, by {implementation}")
            message = f"{name} must not depend on a key that no query sees and that was set to NaN, by {implementation}"
            trial.equal(message, spoilt[name], tensor, 0.0)
            trial.equal(f"{name} must equal the formula's, by {implementation}", tensor, expected[name])
    gradients = [expected[f"the gradient of {name}"] for name in inputs]
    for (name, tensor), gradient in zip(inputs.items(), gradients, strict=True):
        direction = trial.random(*tensor.shape)
        slope, difference = float((gradient * direction).sum()), 0.0
        with torch.no_grad():
            for step in (STEP, -STEP):
                tensor.add_(direction, alpha=step)
                difference += float((context(inputs, "reference") * of_context).sum()) / (2 * step)
                tensor.add_(direction, alpha=-step)
        if abs(slope - difference) > SLOPES * max(1.0, abs(difference)):
            message = f"along a random direction {slope:.6g}, by differences {difference:.6g}"
            trial.fail(f"the gradient of {name} must match finite differences: {message}")


def _product(query: Tensor, key: Tensor) -> Tensor:
    """Return scores of queries and keys of any two widths."""
    return query.mean(-1)[..., None] * key.mean(-1)[..., None, :]


SLOTS: dict[str, tuple[type, Callable[[_Trial], None]]] = {
    "normalizer": (Normalizer, _normalizer),
    "mask": (Mask, _mask),
    "position": (Position, _position),
    "weighting": (Weighting, _weighting),
    "score": (Score, _score),
}
