"""The formula, in plain torch: the specification against which every other implementation is tested.

Attention(q, D) = Σᵢ α(q, kᵢ) vᵢ, computed in this order: score → soft cap → bias → mask → normalize → weighting →
dropout → mix. Memory grows with Tq · Tk (and also with the width, for scores that compare every feature of every pair).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from attent.attention.base import LoweredSide, Pairs
from attent.attention.call import Call
from attent.errors import ShapeError
from attent.ops.dropout import keep_mask
from attent.ops.eligibility import is_known_true


def unsupported(call: Call) -> str | None:
    """Return None: the formula serves every call."""
    return None


def steps(call: Call, query: Tensor, key: LoweredSide, value: Tensor) -> dict[str, Tensor]:
    """Compute every intermediate of the formula in order, by name.

    The score's own intermediates come first, then `scores` and the later steps up to `output`. `capped`, `biased`,
    `masked`, `normalised` (before a weighting) and `dropped` are present only if the call has such a step. In `masked`,
    a pair that may not attend is −∞.

    Example:
        >>> reference.steps(*prepare(query, key, value, score="dot", mask="causal"))["weights"]

    Args:
        call: the call, as `prepare` returns it together with the three tensors below.
        query: (B, H, Tq, Dq).
        key: features (B, G, Tk, Dk), or the key side stored in a cache.
        value: (B, G, Tk, Dv).
    """
    pairs = call.pairs()
    allowed = call.allowed(pairs)
    lowered_query, lowered_key, value = (
        LoweredSide(query.to(call.accumulation_dtype)),
        exact_keys(call, key),
        call.repeat_kv(value).to(call.accumulation_dtype),
    )
    if allowed is not None:
        lowered_key, value = zero_hidden_keys(allowed.any(-2), lowered_key, value)
    if call.lowered:
        lowered_query = call.score.lower_query(lowered_query.features, lowered_key.center)
    return steps_for_pairs(call, pairs, lowered_query, lowered_key, value, allowed, lowered=call.lowered)


def run(call: Call, query: Tensor, key: LoweredSide, value: Tensor) -> Tensor:
    """Compute the context of each query, (B, H, Tq, Dv)."""
    return steps(call, query, key, value)["output"].to(call.dtype)


def steps_for_pairs(
    call: Call,
    pairs: Pairs,
    query: LoweredSide,
    key: LoweredSide,
    value: Tensor,
    allowed: Tensor | None,
    *,
    lowered: bool,
    score_lowered: Callable[[LoweredSide, LoweredSide], Tensor] | None = None,
) -> dict[str, Tensor]:
    """Compute the steps for some rows.

    Both sides are raw or both lowered, in the accumulation type, with keys repeated for every head and hidden keys set
    to zero. `score_lowered` replaces the score's own function of two lowered sides.
    """
    intermediates = steps_to_weights(call, pairs, query, key, allowed, lowered=lowered, score_lowered=score_lowered)
    weights = intermediates["weights"]
    if call.dropout and call.seed is not None:
        keep = keep_mask(pairs.query_index, pairs.key_index, pairs.heads, call.batch, call.dropout, call.seed)
        intermediates["dropped"] = weights = weights * keep / (1.0 - call.dropout)
    intermediates["output"] = weights @ value  # (B, H, Tq, Dv)
    return intermediates


def steps_to_weights(
    call: Call,
    pairs: Pairs,
    query: LoweredSide,
    key: LoweredSide,
    allowed: Tensor | None,
    *,
    lowered: bool,
    score_lowered: Callable[[LoweredSide, LoweredSide], Tensor] | None = None,
) -> dict[str, Tensor]:
    """Compute the steps up to the weights."""
    # not `or`: PyTorch 2.11 cannot compile the truth value of a partial function
    score_lowered = call.score.score_lowered if score_lowered is None else score_lowered
    intermediates = {"scores": score_lowered(query, key)} if lowered else call.score.steps(query.features, key.features)
    scores, expected = _last(intermediates), (*query.features.shape[:-1], key.features.shape[-2])
    if call.score.form is None and (not isinstance(scores, Tensor) or scores.shape[-2:] != expected[-2:]):
        actual = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ShapeError(f"score {type(call.score).__name__} must return (B, H, Tq, Tk) = {expected}, got {actual}")
    if call.soft_cap is not None:
        intermediates["capped"] = call.soft_cap * torch.tanh(_last(intermediates) / call.soft_cap)
    bias = _bias_at_pairs(call, pairs)
    if bias is not None:
        intermediates["biased"] = _last(intermediates) + bias
    if call.score_mod is not None:
        intermediates["modified"] = call.score_mod(_last(intermediates), pairs)
    if allowed is not None:
        intermediates["masked"] = _last(intermediates).masked_fill(~allowed, -torch.inf)
    if call.score_mod is not None:
        # −∞ hides a pair, as in a bias
        weights = call.normalizer.of_masked(_last(intermediates))
    elif allowed is not None:
        weights = call.normalizer.of_masked(_last(intermediates), allowed)
    else:
        weights = call.normalizer(_last(intermediates))
    if call.sink is not None:
        weights = weights * call.share_of_keys(_last(intermediates))
    if call.weighting is not None:
        intermediates["normalised"] = weights
        weights = weights * call.weighting.factors(pairs).to(weights.dtype)
    intermediates["weights"] = weights
    return intermediates


def exact_keys(call: Call, key: LoweredSide) -> LoweredSide:
    """Return the keys, repeated for every query head, in the accumulation type."""
    return call.repeat_kv_side(key).map(lambda part: part.to(call.accumulation_dtype))


def zero_hidden_keys(visible: Tensor, key: LoweredSide, value: Tensor) -> tuple[LoweredSide, Tensor]:
    """Zero the keys and values that no query sees, so that none of their numbers, not even NaN, can leak.

    Args:
        visible: (B|1, H|1, Tk), True for keys that some query sees.
        key: the key side, (B, H, Tk, D').
        value: (B, H, Tk, Dv).
    """
    # a sum is finite only if every number is finite; a weight of zero is then enough
    if is_known_true(visible.all, value.device) or is_known_true(
        lambda: torch.isfinite(key.features.detach().sum() + value.detach().sum()), value.device
    ):
        return key, value
    hidden = ~visible
    bias = None if key.bias is None else key.bias.masked_fill(hidden, 0.0)
    return (
        LoweredSide(key.features.masked_fill(hidden[..., None], 0.0), bias, key.center),
        value.masked_fill(hidden[..., None], 0.0),
    )


def _bias_at_pairs(call: Call, pairs: Pairs) -> Tensor | None:
    bias = None if call.bias is None else call.bias_term(call.bias_at_pairs(pairs, call.bias))
    if call.position is not None:
        term = call.position.bias(pairs).to(call.accumulation_dtype)
        bias = term if bias is None else bias + term
    return bias


def _last(intermediates: dict[str, Tensor]) -> Tensor:
    return next(reversed(intermediates.values()))
