"""The steps of a Transformer layer around its attention.

Residual connection, layer normalization, feed-forward network, output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor, nn

from attent.layers.feed_forward import FeedForward
from attent.layers.residual import Residual
from attent.views.labels import visible
from attent.views.step import WalkStep, vectors

# The likeliest words that a row shows.
BEST = 5
ACTIVATIONS = {"relu": "max(0, {})", "gelu": "gelu({})", "silu": "silu({})"}


def residual_steps(before: WalkStep, output: WalkStep, around: Residual, suffix: str = "") -> list[WalkStep]:
    """Return the sum of a sub-layer's input and output, and with post-norm the layer normalization of it.

    Args:
        before: the residual stream before the sub-layer.
        output: of the sub-layer.
        around: its residual connection.
        suffix: of the steps' names.
    """
    equation = f"residual{suffix} = {before.name} + {output.name}"
    meaning = "What came in, and what was found: the sub-layer only has to add."
    total = vectors(f"residual{suffix}", equation, meaning, "(B, T, E)", before.values + output.values, before.rows)
    return [total] if around.pre else [total, norm_step(f"norm{suffix}", total, around.norm)]


def norm_step(name: str, before: WalkStep, norm: nn.Module) -> WalkStep:
    """Return the layer normalization of a step."""
    values = before.values
    mean, variance = values.mean(-1), values.var(-1, correction=0)
    step = vectors(
        name,
        f"{name} = γ · ({before.name} − mean) / √(variance + ε) + β",
        "Layer normalization: each row has mean 0 and variance 1, then a factor γ and a term β for each feature.",
        "(B, T, E)",
        norm(values),
        before.rows,
    )
    if not step.rows:
        return step
    return replace(
        step,
        example=f"{before.name}[{visible(step.rows[0])}] has mean {mean[0, 0]:.2f} and variance {variance[0, 0]:.2f}",
    )


def feed_forward_steps(before: WalkStep, module: FeedForward) -> list[WalkStep]:
    """Return the two steps of a feed-forward network: wider, and back."""
    activation = ACTIVATIONS[module.activation.__name__].format(f"{before.name}·W₁ + b₁")
    hidden = vectors(
        "wide",
        f"wide = {activation}",
        "The feed-forward network, the same for each position: what a position has gathered is compared with patterns.",
        "(B, T, F)",
        module.activation(module.widen(before.values)),
        before.rows,
    )
    meaning = "Each pattern that fits writes something to the position."
    return [
        hidden,
        vectors("ffn", "ffn = wide·W₂ + b₂", meaning, "(B, T, E)", module.narrow(hidden.values), before.rows),
    ]


def output_steps(
    before: WalkStep, logits: Tensor, name: Callable[[int], str], rows: Sequence[int] | None, letters: str
) -> list[WalkStep]:
    """Return the logits and the softmax over all words or classes, of which each row shows the likeliest.

    Args:
        before: the features that the output layer reads.
        logits: of every row, (1, T, V).
        name: of an output.
        rows: those with an output; all of them if None.
        letters: what V counts, such as "words".
    """
    rows = range(len(before.rows)) if rows is None else rows
    logits = logits[:, list(rows)].float()
    labels = tuple(before.rows[row] for row in rows)
    best = min(BEST, logits.shape[-1])
    probabilities, indices = logits.softmax(-1).topk(best, -1)
    words = tuple(tuple(name(index) for index in row) for row in indices[0].tolist())
    columns = tuple(f"{rank}." for rank in range(1, best + 1))
    count = f"{logits.shape[-1]:,} {letters}"
    return [
        WalkStep(
            "logits", f"logits = {before.name}·W + b",
            f"A number for each of {count}; shown are the largest.", "(B, T, V)",
            logits.gather(-1, indices), labels, columns, cells=words,
        ),
        WalkStep(
            "probabilities", "probabilities = softmax(logits)",
            f"exp logits / Σ exp logits over {count}: the likeliest.", "(B, T, V)", probabilities, labels, columns,
            cells=words,
        ),
    ]  # fmt: skip
