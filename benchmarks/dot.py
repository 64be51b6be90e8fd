"""Dot forms on a CPU beside PyTorch's scaled_dot_product_attention: plain, 16 bits, dropout, short shapes, a window, a user's score."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from _sides import Work, head, milliseconds, run, table
from torch import Tensor
from torch.nn import functional as F

from attent.attention import attend
from attent.attention.masks import Window


def tensors(*shape: int, dtype: torch.dtype = torch.float32, size: float = 1.0, gradients: bool = True) -> list[Tensor]:
    return [(torch.randn(shape) * size).to(dtype).requires_grad_(gradients) for _ in range(3)]


def backward(work: Callable[[], Tensor], inputs: list[Tensor]) -> Work:
    up = torch.randn_like(inputs[0])
    return lambda: torch.autograd.grad(work(), inputs, up)


def row(name: str, pytorch: Callable[[], Tensor], attent: Callable[[], Tensor], inputs: list[Tensor], *, rounds: int = 15) -> list[str]:
    with torch.no_grad():
        once = milliseconds({"pytorch": pytorch, "attent": attent}, rounds=rounds)
    twice = milliseconds({"pytorch": backward(pytorch, inputs), "attent": backward(attent, inputs)}, rounds=rounds)
    cells = [f"{times[side]:.3g}" for times in (once, twice) for side in ("pytorch", "attent")]
    return [name, *cells[:2], f"{once['pytorch'] / once['attent']:.2f}", *cells[2:], f"{twice['pytorch'] / twice['attent']:.2f}"]


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
                rows.append(row(name, pytorch, attent, inputs))
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
    pytorch, attent = (lambda: F.scaled_dot_product_attention(*inputs, attn_mask=bias)), (lambda: attend(*inputs, bias=bias))
    rows.append(row("(1, 8, 1024, 64) float32, a bias with its gradient", pytorch, attent, [*inputs, bias]))
    table(COLUMNS, rows)
    means = [[name, f"{statistics.geometric_mean(values):.2f}", f"{min(values):.2f}"] for name, values in ratios.items()]
    table(["PyTorch / attent, without dropout and bias", "geometric mean", "least"], means)


def errors() -> None:
    """Print the errors of bfloat16 against float64."""
    head("Largest error in bfloat16 against float64, (1, 8, 1024, 64)")
    rows = []
    for size in (1.0, 3.0):
        inputs = tensors(1, 8, 1024, 64, dtype=torch.bfloat16, size=size, gradients=False)
        right = F.scaled_dot_product_attention(*(tensor.double() for tensor in inputs))
        distances = [
            (context.double() - right).abs().max().item() for context in (F.scaled_dot_product_attention(*inputs), attend(*inputs))
        ]
        rows.append([f"{size:g}", f"{distances[0]:.2e}", f"{distances[1]:.2e}", f"{distances[1] / distances[0]:.2f}"])
    table(["standard deviation", "PyTorch", "attent", "attent / PyTorch"], rows)


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
    columns = ["", "sdpa, µs", "products", "attent", "attent − best", "with gradients: sdpa, µs", "products", "attent", "attent − best"]
    table(columns, rows)


def window() -> None:
    """Measure a window of 256 keys in 16,384."""
    head("A window of 256 keys, T = 16,384, B = 1, H = 1, D = 64, float32")
    inputs, mask = tensors(1, 1, 16384, 64), Window(255, 0)
    rows = [
        row("dense against window", lambda: F.scaled_dot_product_attention(*inputs), lambda: attend(*inputs, mask=mask), inputs, rounds=5)
    ]
    table(COLUMNS, rows)
    dense = torch.ones(2048, 2048, dtype=torch.bool).tril().triu(-255)
    first = [tensor[:, :, :2048].detach() for tensor in inputs]
    far = (F.scaled_dot_product_attention(*first, attn_mask=dense) - attend(*first, mask=mask)).abs().max()
    print(f"\nLargest difference from PyTorch's with the same mask as a table, T = 2,048: {far:.1e}.")


def own() -> None:
    """Measure a score that the user defines, in training."""
    head("A user-defined score, −|q − k|² by products, T = 4,096, B = 1, H = 1, D = 64, forward + backward")
    inputs = tensors(1, 1, 4096, 64)

    def score(query: Tensor, key: Tensor) -> Tensor:
        return 2 * query @ key.mT - query.square().sum(-1)[..., None] - key.square().sum(-1)[..., None, :]

    def eager() -> Tensor:
        return torch.softmax(score(inputs[0], inputs[1]), -1) @ inputs[2]

    times = milliseconds({"eager": backward(eager, inputs), "attent": backward(lambda: attend(*inputs, score=score), inputs)}, rounds=7)
    table(
        ["materialized, ms", "attent, ms", "attent / materialized"],
        [[f"{times['eager']:.0f}", f"{times['attent']:.0f}", f"{times['attent'] / times['eager']:.2f}"]],
    )


PARTS = {"plain": plain, "errors": errors, "brief": brief, "window": window, "own": own}

if __name__ == "__main__":
    run(PARTS, __doc__)
