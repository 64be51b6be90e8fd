"""PyTorch code beside its replacement with attent, as in docs/adopting.md.

1,024 tokens, 8 heads of 64, float32, one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from _sides import head, run, table
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import activate_flash_attention_impl, restore_flash_attention_impl
from torch.nn.attention.bias import causal_lower_right

from attent.attention import attend
from attent.integrations.torch import register

Side = Callable[[], Tensor]


def active(work: Side) -> Side:
    """Return the work with attent's kernels instead of PyTorch's."""

    def run_active() -> Tensor:
        activate_flash_attention_impl("attent")  # pyright: ignore[reportArgumentType]
        try:
            return work()
        finally:
            restore_flash_attention_impl()

    return run_active


def least(pytorch: Side, attent: Side, rounds: int) -> tuple[float, float]:
    """Return each side's shortest processor time in milliseconds; sides alternate, and the first round warms up."""
    times: list[list[float]] = [[], []]
    for number in range(rounds + 1):
        for side, durations in zip((pytorch, attent), times, strict=True):
            begin = time.process_time()
            side()
            durations += [1000 * (time.process_time() - begin)] if number else []
    return min(times[0]), min(times[1])


def row(name: str, pytorch: Side, attent: Side, rounds: int = 4) -> list[str]:
    def with_gradients(work: Side) -> Side:
        return lambda: work().sum().backward()

    with torch.no_grad():
        once = least(pytorch, attent, rounds)
    twice = least(with_gradients(pytorch), with_gradients(attent), rounds)
    return [
        name,
        *(
            cell
            for times in (once, twice)
            for cell in (*(f"{each:.3g}" for each in times), f"{times[0] / times[1]:.2f}")
        ),
    ]


def calls() -> None:
    """Measure each line."""
    register(linear=True)
    torch.set_num_threads(1)
    head("From what you type now to what you type then")
    query, key, value = (torch.randn(1, 8, 1024, 64, requires_grad=True) for _ in range(3))
    bias = torch.randn(1, 8, 1024, 1024, requires_grad=True)
    rows: list[list[str]] = []
    for name, options in (
        ("", {}),
        (", is_causal", {"is_causal": True}),
        (", dropout_p=0.1", {"dropout_p": 0.1}),
        (", a bias", {"attn_mask": bias}),
    ):

        def pytorch(options: dict[str, object] = options) -> Tensor:
            return F.scaled_dot_product_attention(query, key, value, **options)  # pyright: ignore[reportArgumentType]

        rows.append(row(f"F.scaled_dot_product_attention{name}", pytorch, active(pytorch)))
    features = torch.randn(1, 1024, 512, requires_grad=True)
    layer = nn.TransformerEncoderLayer(512, 8, batch_first=True)
    rows.append(row("nn.TransformerEncoderLayer in training", lambda: layer(features), active(lambda: layer(features))))
    longer = [torch.randn(1, 8, 1280, 64, requires_grad=True) for _ in range(2)]
    mask = causal_lower_right(1024, 1280)
    rows.append(
        row(
            "causal_lower_right, 1,280 keys",
            lambda: F.scaled_dot_product_attention(query, *longer, attn_mask=mask),  # pyright: ignore[reportArgumentType]
            lambda: attend(query, *longer, mask="causal"),
        )
    )
    rows.append(
        row(
            "softmax(q kᵀ/√d) v by hand",
            lambda: torch.softmax(query @ key.mT / 8, -1) @ value,
            lambda: attend(query, key, value),
        )
    )
    table(["", "PyTorch, ms", "attent, ms", "×", "with gradients: PyTorch, ms", "attent, ms", "×"], rows)


if __name__ == "__main__":
    run({"calls": calls}, __doc__)
