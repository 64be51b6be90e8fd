"""Dot forms on a CPU beside PyTorch's scaled_dot_product_attention: plain, 16 bits, dropout, short shapes, a window, one's own score."""

from __future__ import annotations

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


def row(name: str, theirs: Callable[[], Tensor], ours: Callable[[], Tensor], inputs: list[Tensor], *, rounds: int = 15) -> list[str]:
    with torch.no_grad():
        once = milliseconds({"theirs": theirs, "ours": ours}, rounds=rounds)
    twice = milliseconds({"theirs": backward(theirs, inputs), "ours": backward(ours, inputs)}, rounds=rounds)
    cells = [f"{times[side]:.3g}" for times in (once, twice) for side in ("theirs", "ours")]
    return [name, *cells[:2], f"{once['theirs'] / once['ours']:.2f}", *cells[2:], f"{twice['theirs'] / twice['ours']:.2f}"]


COLUMNS = ["", "PyTorch, ms", "attent, ms", "×", "with gradients: PyTorch, ms", "attent, ms", "×"]


def plain() -> None:
    """float32, bfloat16, dropout."""
    head("Dot product, forward and forward + backward")
    rows = []
    for shape in ((8, 8, 256, 64), (1, 8, 1024, 64), (1, 8, 2048, 64), (1, 4, 4096, 64)):
        for dtype in (torch.float32, torch.bfloat16):
            for causal in (False, True):
                some = tensors(*shape, dtype=dtype)
                name = f"{shape} {str(dtype).removeprefix('torch.')}{' causal' if causal else ''}"
                theirs, ours = (
                    lambda some=some, causal=causal: F.scaled_dot_product_attention(*some, is_causal=causal),
                    lambda some=some, causal=causal: attend(*some, mask="causal" if causal else None),
                )
                rows.append(row(name, theirs, ours, some))
    for shape in ((8, 8, 256, 64), (1, 8, 1024, 64), (32, 4, 64, 32)):
        some = tensors(*shape)
        theirs, ours = (
            lambda some=some: F.scaled_dot_product_attention(*some, dropout_p=0.1),
            lambda some=some: attend(*some, dropout=0.1, seed=1),
        )
        rows.append(row(f"{shape} float32 dropout 0.1", theirs, ours, some))
    table(COLUMNS, rows)


def errors() -> None:
    """16 bits against float64."""
    head("Largest error in bfloat16 against float64, (1, 8, 1024, 64)")
    rows = []
    for size in (1.0, 3.0):
        some = tensors(1, 8, 1024, 64, dtype=torch.bfloat16, size=size, gradients=False)
        right = F.scaled_dot_product_attention(*(tensor.double() for tensor in some))
        far = [(found.double() - right).abs().max().item() for found in (F.scaled_dot_product_attention(*some), attend(*some))]
        rows.append([f"{size:g}", f"{far[0]:.2e}", f"{far[1]:.2e}", f"{far[1] / far[0]:.2f}"])
    table(["standard deviation", "PyTorch", "attent", "attent / PyTorch"], rows)


def products(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.softmax(query @ key.mT * query.shape[-1] ** -0.5, -1) @ value


def brief() -> None:
    """Where PyTorch's backward is slower than plain products: against the better of the two."""
    head("Short shapes: the best direct call of PyTorch's, which is scaled_dot_product_attention or plain products")
    rows = []
    for groups, length in ((64, 16), (128, 16), (64, 32), (128, 32), (64, 64), (128, 64), (64, 128), (128, 128)):
        some = tensors(groups // 8, 8, length, 32)
        sides = {
            "sdpa": lambda some=some: F.scaled_dot_product_attention(*some),
            "products": lambda some=some: products(*some),
            "attent": lambda some=some: attend(*some),
        }
        with torch.no_grad():
            once = milliseconds(sides, rounds=200, seconds=2)
        twice = milliseconds({name: backward(work, some) for name, work in sides.items()}, rounds=200, seconds=2)
        cells = [f"{1000 * times[name]:.0f}" for times in (once, twice) for name in sides]
        more = [1000 * (times["attent"] - min(times["sdpa"], times["products"])) for times in (once, twice)]
        rows.append([f"B·H = {groups}, T = {length}", *cells[:3], f"{more[0]:+.0f}", *cells[3:], f"{more[1]:+.0f}"])
    columns = ["", "sdpa, µs", "products", "attent", "attent − best", "with gradients: sdpa, µs", "products", "attent", "attent − best"]
    table(columns, rows)


def window() -> None:
    """A window of 256 keys in 16,384."""
    head("A window of 256 keys, T = 16,384, B = 1, H = 1, D = 64, float32")
    some, mask = tensors(1, 1, 16384, 64), Window(255, 0)
    rows = [row("dense against window", lambda: F.scaled_dot_product_attention(*some), lambda: attend(*some, mask=mask), some, rounds=5)]
    table(COLUMNS, rows)
    table_ = torch.ones(2048, 2048, dtype=torch.bool).tril().triu(-255)
    few = [tensor[:, :, :2048].detach() for tensor in some]
    far = (F.scaled_dot_product_attention(*few, attn_mask=table_) - attend(*few, mask=mask)).abs().max()
    print(f"\nLargest difference from PyTorch's with the same mask as a table, T = 2,048: {far:.1e}.")


def own() -> None:
    """A score in the user's own words, in training."""
    head("One's own score, −|q − k|² by products, T = 4,096, B = 1, H = 1, D = 64, forward + backward")
    some = tensors(1, 1, 4096, 64)

    def score(query: Tensor, key: Tensor) -> Tensor:
        return 2 * query @ key.mT - query.square().sum(-1)[..., None] - key.square().sum(-1)[..., None, :]

    def eager() -> Tensor:
        return torch.softmax(score(some[0], some[1]), -1) @ some[2]

    times = milliseconds({"eager": backward(eager, some), "attent": backward(lambda: attend(*some, score=score), some)}, rounds=7)
    table(
        ["materialised, ms", "attent, ms", "attent / materialised"],
        [[f"{times['eager']:.0f}", f"{times['attent']:.0f}", f"{times['attent'] / times['eager']:.2f}"]],
    )


PARTS = {"plain": plain, "errors": errors, "brief": brief, "window": window, "own": own}

if __name__ == "__main__":
    run(PARTS, __doc__)
