"""Additive attention on a GPU.

The sides are attent, the textbook line eager and with torch.compile, and dot-product attention of the same shape, in
milliseconds for the forward, and the forward with gradients, for T from 512 to 8,192 and D from 64 to 256. The textbook
line is left out if its tensor of all sums of a query and a key does not fit into memory.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable

import torch
from _report import revision
from _sides import table
from additive import textbook
from torch import Tensor
from torch.nn import functional as F

from attent.attention import attend
from attent.attention.scores import Additive
from attent.ops.eligibility import TRITON_INSTALLED

Work = Callable[[], object]
# Maximum share of the GPU's memory for the textbook line's tables.
SHARE = 0.6


def milliseconds(sides: dict[str, Work], rounds: int = 20, seconds: float = 4.0) -> dict[str, float]:
    """Return the shortest time of each side on the GPU; the sides alternate, after two runs of each to warm up."""
    best = dict.fromkeys(sides, float("inf"))
    for work in sides.values():
        for _ in range(2):
            work()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for number in range(rounds):
        if number >= 3 and time.perf_counter() - started > seconds:
            break
        for name, work in sides.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            work()
            end.record()
            torch.cuda.synchronize()
            best[name] = min(best[name], begin.elapsed_time(end))
    return best


def one_shape(heads: int, tokens: int, width: int, dtype: torch.dtype, causal: bool) -> list[list[str]]:
    """Measure one shape and return a table row for each side."""
    device = torch.device("cuda")
    query, key, value = (
        torch.randn(1, heads, tokens, width, device=device, dtype=dtype, requires_grad=True) for _ in range(3)
    )
    up = torch.randn(1, heads, tokens, width, device=device, dtype=dtype)
    score = Additive(width, width, width).to(device, dtype)
    assert score.bias is not None and score.v is not None
    weights = (score.query_weight, score.key_weight, score.bias, score.v)
    mask = "causal" if causal else None
    forward: dict[str, Callable[[], Tensor]] = {
        "attent": lambda: attend(query, key, value, score=score, mask=mask, implementation="tanh"),
        "dot product": lambda: F.scaled_dot_product_attention(query, key, value, is_causal=causal),
    }
    if not causal:
        compiled = torch.compile(textbook, dynamic=False)
        forward["textbook, torch.compile"] = lambda: compiled(query, key, value, *weights)
        # the sums, their tanh, and the gradients of both
        if (
            4 * heads * tokens**2 * width * dtype.itemsize
            < SHARE * torch.cuda.get_device_properties(device).total_memory
        ):
            forward["textbook"] = lambda: textbook(query, key, value, *weights)
    tensors = [query, key, value, *weights]

    def gradients(name: str) -> Work:
        inputs = tensors[:3] if name == "dot product" else tensors
        return lambda: torch.autograd.grad(forward[name](), inputs, up)

    def timed(sides: dict[str, Work]) -> dict[str, float]:
        fitting = {}
        for name, work in sides.items():
            try:
                work()
                fitting[name] = work
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
        return milliseconds(fitting)

    with torch.no_grad():
        once = timed({**forward})
    torch.cuda.reset_peak_memory_stats()
    forward["attent"]().backward(up)
    peak = torch.cuda.max_memory_allocated() / 2**20
    twice = timed({name: gradients(name) for name in forward})
    shape = f"H = {heads}, T = {tokens}, D = {width}" + (", causal" if causal else "")
    return [
        [
            shape,
            name,
            *(f"{of[name]:.3f}" if name in of else "out of memory" for of in (once, twice)),
            f"{peak:.0f}" if name == "attent" else "",
        ]
        for name in forward
    ]


def errors(dtype: torch.dtype) -> None:
    """Print the largest relative errors against float64, gradients included."""
    inputs = [torch.randn(1, 2, 333, 96, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]
    score = Additive(96, 96, 96).to("cuda", dtype)
    inputs += list(score.parameters())
    order = dict(zip((name for name, _ in score.named_parameters()), inputs[3:], strict=True))
    names = ("query_weight", "key_weight", "bias", "v")

    def line(tensors: list[Tensor]) -> Tensor:
        of = dict(zip(order, tensors[3:], strict=True))
        return textbook(*tensors[:3], *(of[name] for name in names))

    def all_of(work: Callable[[list[Tensor]], Tensor], inputs: list[Tensor]) -> list[Tensor]:
        context = work(inputs)
        return [context.detach(), *torch.autograd.grad(context.square().sum(), inputs)]

    right = all_of(line, [tensor.detach().double().requires_grad_() for tensor in inputs])
    for name, work in (
        ("textbook", line),
        ("attent", lambda inputs: attend(*inputs[:3], score=score, implementation="tanh")),
    ):
        distance = max(
            ((a.double() - b).abs().max() / b.abs().max()).item()
            for a, b in zip(all_of(work, inputs), right, strict=True)
        )
        print(f"largest relative error of {name}, {dtype}: {distance:.1e}")


def main() -> None:
    """Measure, or print why that is not possible."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--heads", type=int, default=8)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("Nothing measured: this benchmark needs a CUDA device, and torch finds none.")
        return
    if not TRITON_INSTALLED:
        print("Nothing measured: this benchmark needs Triton, which comes with torch for CUDA.")
        return
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    print(f"\n## Additive attention on a GPU\n\n{torch.cuda.get_device_name()}, {versions}, commit {revision()}.\n")
    for dtype in (torch.float32, torch.bfloat16):
        errors(dtype)
    for dtype in (torch.float32, torch.bfloat16):
        print(f"\nB = 1, {dtype}\n")
        rows = [
            row
            for tokens in options.tokens
            for width in options.widths
            for causal in (False, True)
            for row in one_shape(options.heads, tokens, width, dtype, causal)
        ]
        table(["shape", "", "forward, ms", "forward + backward, ms", "peak of attent, MiB"], rows)


if __name__ == "__main__":
    main()
