"""Dot-product attention on a CPU beside scaled_dot_product_attention.

Parts: plain, 16 bits, dropout, short shapes, a window, a user-defined score, sinks, memory.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import torch
from _sides import Work, head, milliseconds, run, table
from torch import Tensor
from torch.nn import functional as F

from attent.attention import attend
from attent.attention.masks import Window
from attent.ops import native, onednn


def tensors(*shape: int, dtype: torch.dtype = torch.float32, size: float = 1.0, gradients: bool = True) -> list[Tensor]:
    return [(torch.randn(shape) * size).to(dtype).requires_grad_(gradients) for _ in range(3)]


def backward(work: Callable[[], Tensor], inputs: list[Tensor]) -> Work:
    up = torch.randn_like(inputs[0])
    return lambda: torch.autograd.grad(work(), inputs, up)


def row(
    name: str, pytorch: Callable[[], Tensor], attent: Callable[[], Tensor], inputs: list[Tensor], *, rounds: int = 15
) -> list[str]:
    """Measure both sides, print their row, and return its cells."""
    with torch.no_grad():
        once = milliseconds({"pytorch": pytorch, "attent": attent}, rounds=rounds, seconds=SECONDS)
    gradients = {"pytorch": backward(pytorch, inputs), "attent": backward(attent, inputs)}
    twice = milliseconds(gradients, rounds=rounds, seconds=SECONDS)
    cells = [f"{times[side]:.3g}" for times in (once, twice) for side in ("pytorch", "attent")]
    cells = [
        name,
        *cells[:2],
        f"{once['pytorch'] / once['attent']:.2f}",
        *cells[2:],
        f"{twice['pytorch'] / twice['attent']:.2f}",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)
    return cells


# Seconds of one measurement after which no round begins.
SECONDS = 1.0
SHAPES = (
    (8, 8, 256, 64),
    (1, 8, 1024, 64),
    (1, 8, 1024, 128),
    (1, 8, 2048, 64),
    (1, 4, 4096, 64),
    (1, 4, 4096, 128),
    (1, 2, 8192, 64),
)
COLUMNS = ["", "PyTorch, ms", "attent, ms", "×", "with gradients: PyTorch, ms", "attent, ms", "×"]


def plain() -> None:
    """Measure float32, bfloat16 and dropout."""
    head("Dot product, forward and forward + backward")
    table(COLUMNS, [])
    rows = []
    for shape in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            for causal in (False, True):
                inputs = tensors(*shape, dtype=dtype)
                name = f"{shape} {str(dtype).removeprefix('torch.')}{' causal' if causal else ''}"
                pytorch, attent = (
                    lambda inputs=inputs, causal=causal: F.scaled_dot_product_attention(*inputs, is_causal=causal),
                    lambda inputs=inputs, causal=causal: attend(*inputs, mask="causal" if causal else None),
                )
                rows.append(
                    row(name, pytorch, attent, inputs, rounds=15 if shape[2] <= 1024 else 3 if shape[2] <= 2048 else 1)
                )
    ratios = {
        f"{dtype}, {name}": [float(cells[column]) for cells in rows if dtype in cells[0]]
        for dtype in ("float32", "bfloat16")
        for name, column in (("forward", 3), ("with gradients", 6))
    }
    for shape in ((8, 8, 256, 64), (1, 8, 1024, 64), (32, 4, 64, 32)):
        inputs = tensors(*shape)
        pytorch, attent = (
            lambda inputs=inputs: F.scaled_dot_product_attention(*inputs, dropout_p=0.1),
            lambda inputs=inputs: attend(*inputs, dropout=0.1, seed=1),
        )
        rows.append(row(f"{shape} float32 dropout 0.1", pytorch, attent, inputs))
    inputs, bias = tensors(1, 8, 1024, 64), torch.randn(1, 8, 1024, 1024, requires_grad=True)
    pytorch, attent = (
        (lambda: F.scaled_dot_product_attention(*inputs, attn_mask=bias)),
        (lambda: attend(*inputs, bias=bias)),
    )
    rows.append(row("(1, 8, 1024, 64) float32, a bias with its gradient", pytorch, attent, [*inputs, bias]))
    print()
    means = [
        [name, f"{statistics.geometric_mean(values):.2f}", f"{min(values):.2f}"] for name, values in ratios.items()
    ]
    table(["PyTorch / attent, without dropout and bias", "geometric mean", "least"], means)


def context_and_gradients(attention: Callable[..., Tensor], inputs: list[Tensor], up: Tensor) -> list[Tensor]:
    context = attention(*inputs)
    return [context, *torch.autograd.grad(context, inputs, up.to(context.dtype))]


def errors() -> None:
    """Print the largest errors of three draws relative to float64, for each register width of this processor."""
    head("Largest errors against float64, two heads, of three draws: attent / PyTorch")
    level = native.simd_level()
    for forced in range(level, -1, -1):
        native.simd_level = lambda forced=forced: forced
        print(f"\nRegisters of {('128 bits', 'AVX2', 'AVX-512')[forced]}:\n")
        rows = [
            error_row(*case)
            for case in product(
                (torch.float32, torch.bfloat16, torch.float16), (256, 1024, 4096), (64, 128), (False, True), (1.0, 3.0)
            )
        ]
        table(["", "context", "dq", "dk", "dv"], rows)
    native.simd_level = lambda: level


def error_row(dtype: torch.dtype, length: int, width: int, causal: bool, size: float) -> list[str]:
    ours, theirs = torch.zeros(4), torch.zeros(4)
    mask = "causal" if causal else None
    for _ in range(3):
        inputs, up = tensors(1, 2, length, width, dtype=dtype, size=size), torch.randn(1, 2, length, width).to(dtype)

        def pytorch(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(query, key, value, is_causal=causal)

        def attent(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return attend(query, key, value, mask=mask, implementation="dense")

        exact = context_and_gradients(pytorch, [tensor.detach().double().requires_grad_() for tensor in inputs], up)
        for attention, worst in ((attent, ours), (pytorch, theirs)):
            found = context_and_gradients(attention, inputs, up)
            distances = [(one - right).abs().max().float() for one, right in zip(found, exact, strict=True)]
            worst.copy_(torch.maximum(worst, torch.stack(distances).detach()))
    name = (
        f"{str(dtype).removeprefix('torch.')} {length:,} keys, width {width}{', causal' if causal else ''}, deviation "
        f"{size:g}"
    )
    return [name, *(f"{ratio:.2f}" for ratio in (ours / theirs).tolist())]


def seconds_of_process(sides: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Return the shortest processor time of each alternating side, which other programs disturb least."""
    best, end = dict.fromkeys(sides, float("inf")), time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, side in sides.items():
            begin = time.process_time()
            side()
            best[name] = min(best[name], time.process_time() - begin)
    return best


# Of matrices that fit in the cache.
SIDE = 384


def rates_of_products(seconds: float = 4.0) -> dict[str, float]:
    """Return the rate of each library's product of matrices, in GFLOP/s of one thread; the highest is the peak."""
    left, right, out = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE), torch.empty(SIDE, SIDE)
    libraries = {"MKL": lambda: torch.mm(left, right, out=out), "oneDNN": lambda: onednn.multiply(left, right)}
    return {name: 2 * SIDE**3 / best / 1e9 for name, best in seconds_of_process(libraries, seconds).items()}


def share() -> None:
    """Print the forward's rate of multiply-adds beside that of a product of matrices that fit in the cache."""
    torch.set_num_threads(1)
    reached = rates_of_products()
    peak = max(reached.values())
    head("Share of the peak, float32, forward, 2 heads, one thread, processor time")
    said = ", ".join(f"{name} {rate:.0f}" for name, rate in reached.items())
    print(
        f"The peak is PyTorch's faster product of {SIDE} × {SIDE} × {SIDE}, GFLOP/s: {said}. Attention counts 4 · B · "
        "H · T² · D.\n"
    )
    rows = []
    for width, length in product((64, 128), (128, 256, 512, 1024, 2048, 4096)):
        inputs = tensors(1, 2, length, width, gradients=False)
        sides = {
            "PyTorch": lambda inputs=inputs: F.scaled_dot_product_attention(*inputs),
            "attent": lambda inputs=inputs: attend(*inputs, implementation="dense"),
        }
        rates = [8 * length**2 * width / best / 1e9 for best in seconds_of_process(sides, 3).values()]
        rows.append(
            [
                f"T = {length:,}, D = {width}",
                *(cell for rate in rates for cell in (f"{rate:.0f}", f"{rate / peak:.0%}")),
            ]
        )
    table(["", "PyTorch, GFLOP/s", "share", "attent, GFLOP/s", "share"], rows)


def products(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.softmax(query @ key.mT * query.shape[-1] ** -0.5, -1) @ value


def brief() -> None:
    """Measure shapes where PyTorch's backward is slower than plain products, against the faster of the two."""
    head("Short shapes: the best direct call of PyTorch's, which is scaled_dot_product_attention or plain products")
    rows = []
    for groups, length in ((64, 16), (128, 16), (64, 32), (128, 32), (64, 64), (128, 64), (64, 128), (128, 128)):
        inputs = tensors(groups // 8, 8, length, 32)
        sides = {
            "sdpa": lambda inputs=inputs: F.scaled_dot_product_attention(*inputs),
            "products": lambda inputs=inputs: products(*inputs),
            "attent": lambda inputs=inputs: attend(*inputs),
        }
        with torch.no_grad():
            once = milliseconds(sides, rounds=200, seconds=2)
        twice = milliseconds({name: backward(work, inputs) for name, work in sides.items()}, rounds=200, seconds=2)
        cells = [f"{1000 * times[name]:.0f}" for times in (once, twice) for name in sides]
        more = [1000 * (times["attent"] - min(times["sdpa"], times["products"])) for times in (once, twice)]
        rows.append([f"B·H = {groups}, T = {length}", *cells[:3], f"{more[0]:+.0f}", *cells[3:], f"{more[1]:+.0f}"])
    columns = [
        "",
        "sdpa, µs",
        "products",
        "attent",
        "attent − best",
        "with gradients: sdpa, µs",
        "products",
        "attent",
        "attent − best",
    ]
    table(columns, rows)


def window() -> None:
    """Measure a window of 256 keys in 16,384."""
    head("A window of 256 keys, T = 16,384, B = 1, H = 1, D = 64, float32")
    inputs, mask = tensors(1, 1, 16384, 64), Window(255, 0)
    table(COLUMNS, [])
    row(
        "dense against window",
        lambda: F.scaled_dot_product_attention(*inputs),
        lambda: attend(*inputs, mask=mask),
        inputs,
        rounds=5,
    )
    dense = torch.ones(2048, 2048, dtype=torch.bool).tril().triu(-255)
    query, key, value = (tensor[:, :, :2048].detach() for tensor in inputs)
    far = (
        (F.scaled_dot_product_attention(query, key, value, attn_mask=dense) - attend(query, key, value, mask=mask))
        .abs()
        .max()
    )
    print(f"\nLargest difference from PyTorch's with the same mask as a table, T = 2,048: {far:.1e}.")


def own() -> None:
    """Measure a score that the user defines, in training."""
    head("A user-defined score, −|q − k|² by products, T = 4,096, B = 1, H = 1, D = 64, forward + backward")
    inputs = tensors(1, 1, 4096, 64)

    def score(query: Tensor, key: Tensor) -> Tensor:
        return 2 * query @ key.mT - query.square().sum(-1)[..., None] - key.square().sum(-1)[..., None, :]

    def eager() -> Tensor:
        return torch.softmax(score(inputs[0], inputs[1]), -1) @ inputs[2]

    times = milliseconds(
        {"eager": backward(eager, inputs), "attent": backward(lambda: attend(*inputs, score=score), inputs)}, rounds=7
    )
    table(
        ["materialized, ms", "attent, ms", "attent / materialized"],
        [[f"{times['eager']:.0f}", f"{times['attent']:.0f}", f"{times['attent'] / times['eager']:.2f}"]],
    )


def eager_with_sinks(query: Tensor, key: Tensor, value: Tensor, sink: Tensor) -> Tensor:
    """Compute causal attention with sinks as transformers' eager function of gpt-oss does: with one more column."""
    hidden = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).triu(1)
    scores = (query @ key.mT * query.shape[-1] ** -0.5).masked_fill(hidden, -torch.inf)
    column = sink[None, :, None, None].expand(*scores.shape[:3], 1).to(scores.dtype)
    return torch.cat((scores, column), -1).softmax(-1)[..., :-1] @ value


def sinks() -> None:
    """Measure causal attention with a sink for each head beside the same without, and beside the eager form."""
    head("Sinks, causal, 4 heads of 64, forward and forward + backward")
    rows = []
    for dtype, length in product((torch.float32, torch.bfloat16), (256, 1024, 2048)):
        inputs, sink = tensors(1, 4, length, 64, dtype=dtype), torch.randn(4, requires_grad=True)
        sides = {
            "eager": lambda inputs=inputs, sink=sink: eager_with_sinks(*inputs, sink),
            "without": lambda inputs=inputs: attend(*inputs, mask="causal", implementation="dense"),
            "with": lambda inputs=inputs, sink=sink: attend(*inputs, mask="causal", sink=sink),
        }
        with torch.no_grad():
            once = milliseconds(sides, rounds=9, seconds=2)
        gradients = {name: backward(work, [*inputs, sink]) for name, work in sides.items() if name != "without"}
        twice = milliseconds(gradients | {"without": backward(sides["without"], inputs)}, rounds=9, seconds=2)
        cells = [
            cell
            for times in (once, twice)
            for cell in (
                *(f"{times[name]:.3g}" for name in sides),
                f"{times['without'] / times['with']:.2f}",
            )
        ]
        rows.append([f"{str(dtype).removeprefix('torch.')}, T = {length:,}", *cells])
    columns = ["eager, ms", "attent without sinks, ms", "with, ms", "without / with"]
    table(["", *columns, *(f"with gradients: {columns[0]}", *columns[1:])], rows)


LONG = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from _sides import peak
from attent.attention import attend
def step(length):
    inputs = [torch.randn(1, 1, length, 64, requires_grad=True) for _ in range(3)]
    up = torch.randn(1, 1, length, 64)
    # what the step returns: the context and three gradients
    kept = [torch.ones(1, 1, length, 64) for _ in range(4)]
    before = peak()
    del kept
    sink = torch.zeros(1, requires_grad=True) if sys.argv[2:] else None
    context = attend(*inputs, sink=sink, implementation="dense")
    gradients = torch.autograd.grad(context, inputs if sink is None else [*inputs, sink], up)
    return peak() - before
step(64)
print(step(32768))
"""


def memory() -> None:
    """Measure the memory of dense attention beyond its tensors, in a fresh process."""
    head("Memory of dense attention, T = 32,768, B = 1, H = 1, D = 64, float32, forward + backward")
    command, beyond = [sys.executable, "-c", LONG, str(Path(__file__).parent)], []
    for more in ([], ["sink"]):
        process = subprocess.run([*command, *more], capture_output=True, text=True, check=True)
        beyond.append(f"{float(process.stdout):.0f}")
    table(
        ["beyond inputs, context and gradients, MiB", "with a sink, MiB", "a table of scores, MiB"],
        [[*beyond, f"{4 * 32768**2 / 2**20:,.0f}"]],
    )


PARTS = {
    "plain": plain,
    "errors": errors,
    "share": share,
    "brief": brief,
    "window": window,
    "own": own,
    "sinks": sinks,
    "memory": memory,
}

if __name__ == "__main__":
    run(PARTS, __doc__)
