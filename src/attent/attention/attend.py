"""attend(): check once, plan, run. explain(): the plan."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Literal, overload

import torch
from torch import Tensor, nn

from attent.attention import reference
from attent.attention.arguments import prepare
from attent.attention.backends import dense, sdpa, select, tanh, tiled
from attent.attention.backends.heuristics import current_row
from attent.attention.base import Mask, Normalizer, Position, Score, Weighting
from attent.attention.call import Prepared
from attent.attention.capture.interventions import INTERVENTIONS, change_context, running_modules
from attent.attention.capture.watch import WATCHERS, report
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import refuse_keywords
from attent.ops.eligibility import without_autocast

# in order of preference
IMPLEMENTATIONS: dict[str, ModuleType] = {
    "dense": dense,
    "sdpa": sdpa,
    "tanh": tanh,
    "reference": reference,
    "tiled": tiled,
}
# The arguments of PyTorch's function, and their equivalents here.
OF_PYTORCH = {
    "is_causal": "for is_causal=True pass mask='causal', and query_start=0 if there are fewer queries than keys",
    "scale": "for scale=s pass score=attent.attention.scores.ScaledDot(s)",
    "attn_mask": "pass a boolean attn_mask as mask, and a float one as bias",
    "dropout_p": "pass dropout_p as dropout, with a seed",
    "enable_gqa": "key and value may have fewer heads than query without it",
}


@overload
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: str | Score | nn.Module | Callable[[Tensor, Tensor], Tensor] = ...,
    normalizer: str | Normalizer = ...,
    mask: str | Mask | Tensor | None = ...,
    bias: Tensor | None = ...,
    sink: Tensor | None = ...,
    soft_cap: float | None = ...,
    position: str | Position | None = ...,
    query_start: int | Tensor | None = ...,
    lengths: Tensor | None = ...,
    weighting: Weighting | None = ...,
    dropout: float = ...,
    seed: int | Tensor | None = ...,
    implementation: str = ...,
    return_map: Literal[False] = ...,
) -> Tensor: ...


@overload
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: str | Score | nn.Module | Callable[[Tensor, Tensor], Tensor] = ...,
    normalizer: str | Normalizer = ...,
    mask: str | Mask | Tensor | None = ...,
    bias: Tensor | None = ...,
    sink: Tensor | None = ...,
    soft_cap: float | None = ...,
    position: str | Position | None = ...,
    query_start: int | Tensor | None = ...,
    lengths: Tensor | None = ...,
    weighting: Weighting | None = ...,
    dropout: float = ...,
    seed: int | Tensor | None = ...,
    implementation: str = ...,
    return_map: Literal[True],
) -> tuple[Tensor, AttentionMap]: ...


@refuse_keywords(OF_PYTORCH)
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: str | Score | nn.Module | Callable[[Tensor, Tensor], Tensor] = "scaled_dot",
    normalizer: str | Normalizer = "softmax",
    mask: str | Mask | Tensor | None = None,
    bias: Tensor | None = None,
    sink: Tensor | None = None,
    soft_cap: float | None = None,
    position: str | Position | None = None,
    query_start: int | Tensor | None = None,
    lengths: Tensor | None = None,
    weighting: Weighting | None = None,
    dropout: float = 0.0,
    seed: int | Tensor | None = None,
    implementation: str = "auto",
    return_map: bool = False,
) -> Tensor | tuple[Tensor, AttentionMap]:
    """Compute Attention(q, D) = Σᵢ α(q, kᵢ) vᵢ for every query over the database D = {(k₁, v₁) … (kₙ, vₙ)}.

    The order is score → soft cap → bias → mask → normalize, with a sink → weighting → dropout → mix. Scores are summed
    and normalized in float32 at least. A query that may see no key returns zeros. The general form: Bahdanau, Cho and
    Bengio 2015, eq. 5–6 (arXiv:1409.0473); the names query, key, value: Vaswani et al. 2017, §3.2 (arXiv:1706.03762).

    Args:
        query: (B, H, Tq, Dq), (B, T, D) or (T, D), as key and value: leading axes are not broadcast.
        key: (B, G, Tk, Dk), where H is a multiple of G: query heads share key heads in runs of H/G.
        value: (B, G, Tk, Dv).
        score: the fit of a key to a query: a name, a Score, or a function (query, key) → (B, H, Tq, Tk).
        normalizer: scores → weights: a name or a Normalizer.
        mask: which query may see which key: "causal", a Mask, a boolean tensor (Tq, Tk) or (B|1, H|1, Tq|1, Tk|1) in
            which True means "may attend".
        bias: a float term (Tq, Tk) or (B|1, H|1, Tq|1, Tk|1) added to the scores; −∞ hides a pair.
        sink: (H,), a logit without a value in each row's softmax, which leaves less than one (arXiv:2508.10925, §2.1).
        soft_cap: c > 0 turns a score s into c·tanh(s/c) (Gemma 2, arXiv:2408.00118, §2).
        position: "rotary", "alibi", or a Position.
        query_start: the first query's position, one number or (B,); by default Tk − Tq, or lengths − Tq.
        lengths: (B,) the number of valid keys of each sequence.
        weighting: a factor on the normalized weights, such as a GaussianWindow about the center of each query.
        dropout: the share of the normalized weights to drop, in [0, 1).
        seed: a whole number, or a tensor that holds one; needed with dropout, whose mask depends on (seed, b, h, i, j).
        implementation: "auto", or "dense", "sdpa", "tanh", "reference" or "tiled", which runs or raises an error.
        return_map: whether to return the weights too, as an AttentionMap whose rows are computed when they are read.

    Returns:
        The contexts (B, H, Tq, Dv), with the query's axes and dtype; with return_map, a pair (contexts, map).

    Raises:
        ShapeError, DTypeError, DeviceError: the tensors do not fit together.
        UnknownNameError, MissingArgumentError: an unknown name, or the bare name of a part that has parameters.
        ArgumentError: a number out of range, or dropout without a seed.
        ImplementationError: the requested implementation cannot serve this call.
    """
    prepared = prepare(
        query, key, value, score=score, normalizer=normalizer, mask=mask, bias=bias, sink=sink,
        soft_cap=soft_cap, position=position, query_start=query_start, lengths=lengths, weighting=weighting,
        dropout=dropout, seed=seed,
    )  # fmt: skip
    return _report_map(prepared, run(prepared, implementation), return_map=return_map)


def _report_map(prepared: Prepared, context: Tensor, *, return_map: bool) -> Tensor | tuple[Tensor, AttentionMap]:
    """Report the map of a call to every open watch, and return it with the contexts if requested."""
    is_watched = bool(WATCHERS) and not torch.compiler.is_compiling()
    if not (is_watched or return_map):
        return context
    weights = AttentionMap.of(prepared)
    if is_watched:
        report(None, weights, prepared.value, context)
    return (context, weights) if return_map else context


def run(prepared: Prepared, implementation: str = "auto") -> Tensor:
    """Plan and compute a checked call, applying the interventions on the calling module."""
    call, plan = prepared.call, select.plan(prepared, IMPLEMENTATIONS, implementation)
    with without_autocast(call.device):
        context = plan.variant.run(*prepared)
        if not torch.compiler.is_compiling() and INTERVENTIONS:
            context = change_context(running_modules(sys._getframe(1)), context, lambda: prepared)
        return call.restore_axes(context)


@dataclass(frozen=True)
class Explanation:
    """The implementation that runs, and why the others do not."""

    chosen: str
    reasons: dict[str, str]  # why each of the others does not run, by name
    # the leaf path of the implementation, such as "products" of sdpa or "row_tiles" of tiled; "batch" if it has
    # only one; "varlen" if each sequence of the batch is computed separately, with only the keys that it needs
    variant: str = "batch"
    # the machine's row of `backends.heuristics` that decided between dense attention and PyTorch's; None if there was
    # no choice
    row: str | None = None

    def __str__(self) -> str:
        """Return a line for each implementation."""
        variant = {"batch": "", "varlen": ", for each sequence separately"}.get(
            self.variant, f", variant {self.variant}"
        )
        row = "" if self.row is None else f" (by the machine row {self.row!r})"
        lines = [f"{self.chosen} runs{variant}{row}"]
        return "\n".join(lines + [f"{name} does not: {reason}" for name, reason in self.reasons.items()])


@refuse_keywords(OF_PYTORCH)
def explain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: str | Score | nn.Module | Callable[[Tensor, Tensor], Tensor] = "scaled_dot",
    normalizer: str | Normalizer = "softmax",
    mask: str | Mask | Tensor | None = None,
    bias: Tensor | None = None,
    sink: Tensor | None = None,
    soft_cap: float | None = None,
    position: str | Position | None = None,
    query_start: int | Tensor | None = None,
    lengths: Tensor | None = None,
    weighting: Weighting | None = None,
    dropout: float = 0.0,
    seed: int | Tensor | None = None,
    implementation: str = "auto",
) -> Explanation:
    """Return the implementation that `attend` would run with the same arguments, and why the others do not.

    For a custom score, a trial with three queries measures the memory that the score needs.

    Args: those of `attend`.

    Raises: what `attend` raises.
    """
    prepared = prepare(
        query, key, value, score=score, normalizer=normalizer, mask=mask, bias=bias, sink=sink,
        soft_cap=soft_cap, position=position, query_start=query_start, lengths=lengths, weighting=weighting,
        dropout=dropout, seed=seed,
    )  # fmt: skip
    plan = select.plan(prepared, IMPLEMENTATIONS, implementation, with_reasons=True)
    row = current_row().name if implementation == "auto" and dense.unsupported(prepared.call) is None else None
    return Explanation(plan.backend, dict(plan.reasons), plan.variant.name, row)
