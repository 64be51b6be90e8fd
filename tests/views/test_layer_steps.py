from __future__ import annotations

import torch

from attent.layers.feed_forward import FeedForward
from attent.layers.residual import Residual, Stream
from attent.views.step import vectors
from attent.views.trace import feed_forward_steps, norm_step, output_steps, residual_steps

ROWS = ("a", "b", "c")


def test_the_steps_are_those_of_the_layer() -> None:
    inputs, module = (
        vectors("X", "X", "", "(B, T, E)", torch.randn(1, 3, 5), ROWS),
        FeedForward(5, 7, activation="gelu"),
    )
    for norm in ("post", "pre"):
        around = Residual(5, norm)
        torch.nn.init.normal_(around.norm.weight)
        stream, read = around.enter(Stream(inputs.values))
        expected = around.leave(stream, module(read))
        inner = norm_step("norm", inputs, around.norm) if around.pre else inputs
        output = feed_forward_steps(inner, module)[-1]
        last = residual_steps(inputs, output, around)[-1]
        torch.testing.assert_close(
            last.values, expected.features if expected.output is None else expected.features + expected.output
        )
    assert feed_forward_steps(inputs, module)[0].equation == "wide = gelu(X·W₁ + b₁)"


def test_a_norm_says_mean_and_variance() -> None:
    values = torch.tensor([[[1.0, 3.0], [5.0, 5.0]]])
    step = norm_step("norm", vectors("X", "X", "", "(B, T, E)", values, ("a", "b")), torch.nn.LayerNorm(2))
    assert step.example == "X[a] has mean 2.00 and variance 1.00"
    torch.testing.assert_close(step.values, torch.tensor([[[-1.0, 1.0], [0.0, 0.0]]]), atol=1e-4, rtol=0)


def test_the_likeliest_of_some_rows() -> None:
    features = vectors("X", "X", "", "(B, T, E)", torch.randn(1, 3, 5), ROWS)
    scores = torch.tensor([0.0, 3.0, 1.0, 2.0, -1.0, -2.0, 0.5]).expand(1, 3, 7)
    logits, probabilities = output_steps(features, scores, "uvwxyzq".__getitem__, [1], "words")
    assert logits.cells == probabilities.cells == (("v", "x", "w", "q", "u"),)
    assert (logits.values[0, 0].tolist(), logits.rows) == ([3.0, 2.0, 1.0, 0.5, 0.0], ("b",))
    torch.testing.assert_close(probabilities.values[0, 0], scores[0, 0].softmax(-1)[[1, 3, 2, 6, 0]])
    (fewer, _) = output_steps(features, scores[..., :2], "uv".__getitem__, None, "classes")
    assert (fewer.rows, fewer.columns) == (ROWS, ("1.", "2."))
