"""Additive attention: the textbook line eager and compiled, attent with and without its extension, and dot products.

It measures one sequence and one head with T = 512, D = 256 in float32, forward and with gradients; then time and memory
up to T = 16,384 with D = 64.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from unittest.mock import patch

import torch
from _sides import Work, head, milliseconds, peak, table
from torch import Tensor
from torch.nn import functional as F

from attent.attention import attend
from attent.attention.scores import Additive
from attent.ops import native


def textbook(query: Tensor, key: Tensor, value: Tensor, w1: Tensor, w2: Tensor, bias: Tensor, v: Tensor) -> Tensor:
    """Compute additive attention as in tutorials, with the sums of all queries and keys in one tensor."""
    hidden = torch.tanh((query @ w1 + bias)[..., :, None, :] + (key @ w2)[..., None, :, :])
    return torch.softmax(hidden @ v, -1) @ value


def short(compiled: bool) -> None:
    """Measure T = 512, D = 256."""
    head("Additive attention, B = 1, H = 1, T = 512, D = 256, float32")
    query, key, value = (torch.randn(1, 1, 512, 256, requires_grad=True) for _ in range(3))
    score, up = Additive(256, 256, 256), torch.randn(1, 1, 512, 256)
    assert score.bias is not None and score.v is not None
    weights = (score.query_weight, score.key_weight, score.bias, score.v)
    whole = torch.compile(textbook) if compiled else None

    def fused() -> Tensor:
        return attend(query, key, value, score=score)

    def plain() -> Tensor:
        with patch.object(native, "library", lambda: None):
            return fused()

    forward: dict[str, Callable[[], Tensor]] = {
        "textbook": lambda: textbook(query, key, value, *weights),
        "attent": fused,
        "attent, no compiler": plain,
        "dot product": lambda: F.scaled_dot_product_attention(query, key, value),
    }
    if whole is not None:
        forward["textbook, torch.compile"] = lambda: whole(query, key, value, *weights)

    def gradients(work: Callable[[], Tensor], inputs: list[Tensor]) -> Work:
        return lambda: torch.autograd.grad(work(), inputs, up)

    tensors = [query, key, value, *weights]
    backward = {
        name: gradients(work, tensors[:3] if name == "dot product" else tensors) for name, work in forward.items()
    }
    with torch.no_grad():
        once = milliseconds({**forward}, seconds=15)
    twice = milliseconds(backward, seconds=25)
    table(
        ["", "forward, ms", "× attent", "forward + backward, ms", "× attent"],
        [
            [
                name,
                f"{once[name]:.2f}",
                f"{once[name] / once['attent']:.1f}",
                f"{twice[name]:.2f}",
                f"{twice[name] / twice['attent']:.1f}",
            ]
            for name in forward
        ],
    )
    ratios = [times["attent"] / times["dot product"] for times in (once, twice)]
    print(f"\nattent / dot product: {ratios[0]:.2f} forward, {ratios[1]:.2f} forward + backward.")
    errors(query, key, value, score, up)


def errors(query: Tensor, key: Tensor, value: Tensor, score: Additive, up: Tensor) -> None:
    """Print the largest errors of the textbook line and attent relative to float64."""
    inputs = [query, key, value, *score.parameters()]
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]

    def all_of(work: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
        context = work(*inputs)
        return [context.detach(), *torch.autograd.grad(context, inputs, up.to(context.dtype))]

    def line(query: Tensor, key: Tensor, value: Tensor, *parameters: Tensor) -> Tensor:
        return textbook(query, key, value, *parameters)

    right = all_of(line, exact)
    distances = [
        max(((a.double() - b).abs().max() / b.abs().max()).item() for a, b in zip(results, right, strict=True))
        for results in (all_of(line, inputs), all_of(lambda q, k, v, *_: attend(q, k, v, score=score), inputs))
    ]
    print(
        f"\nLargest relative error against float64, gradients included: textbook {distances[0]:.1e}, attent "
        f"{distances[1]:.1e}."
    )


def first_call() -> None:
    """Print the time until the first result in a fresh process."""
    code = """
import time, torch
from attent.attention import attend
from attent.attention.scores import Additive
query = torch.randn(1, 1, 512, 256); score = Additive(256, 256, 256)
started = time.perf_counter(); attend(query, query, query, score=score); print(time.perf_counter() - started)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    print(f"\nFirst call of a fresh process: {float(process.stdout):.2f} s.")


def one_length(length: int) -> None:
    """Run forward and backward at one length; the caller starts a process for each length, to measure its memory."""
    query, key, value = (torch.randn(1, 1, length, 64, requires_grad=True) for _ in range(3))
    score = Additive(64, 64, 64)
    small = torch.randn(1, 1, 64, 64, requires_grad=True)
    attend(small, small, small, score=score).sum().backward()
    before, started = peak(), time.perf_counter()
    attend(query, key, value, score=score).sum().backward()
    print(time.perf_counter() - started, peak() - before)


def lengths() -> None:
    """Measure time and memory by length."""
    head("Additive attention by length, B = 1, H = 1, D = 64, float32, forward + backward")
    rows = []
    for length in (2048, 4096, 8192, 16384):
        process = subprocess.run(
            [sys.executable, __file__, "--length", str(length)], capture_output=True, text=True, check=True
        )
        seconds, grown = map(float, process.stdout.split())
        rows.append(
            [
                f"{length:,}",
                f"{seconds:.2f}",
                f"{1e9 * seconds / length**2:.2f}",
                f"{grown:.0f}",
                f"{4 * length**2 * 64 / 2**20:,.0f}",
            ]
        )
    table(["T", "seconds", "ns a pair", "memory grown, MiB", "one textbook tensor, MiB"], rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int)
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out, which takes a minute")
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.length:
        one_length(options.length)
    else:
        short(not options.no_compile)
        first_call()
        lengths()
