"""FlexAttention on a CPU beside PyTorch's, eager and compiled.

Parts: forward with a score_mod and a BlockMask, memory, training.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _sides import Work, head, milliseconds, peak, run, table
from torch import Tensor
from torch.nn.attention import flex_attention as pytorch

import attent

HEADS, WIDTH, LENGTH = 8, 64, 8192
# Eager FlexAttention needs several tables of all pairs, half a GiB each for two heads; its time is proportional to
# heads.
EAGER_HEADS = 2
SLOPES = 2.0 ** -torch.arange(1, HEADS + 1)

ScoreMod = Callable[..., Tensor]
SCORE_MODS: dict[str, ScoreMod | None] = {
    "no score_mod": None,
    "ALiBi": lambda score, b, h, q_idx, kv_idx: score + SLOPES[h] * (kv_idx - q_idx),
    "soft cap": lambda score, b, h, q_idx, kv_idx: 20 * torch.tanh(score / 20),
    "soft cap and ALiBi": lambda score, b, h, q_idx, kv_idx: 20 * torch.tanh(score / 20) + SLOPES[h] * (kv_idx - q_idx),
    "scaled by the head, which stays a function of each pair": lambda score, b, h, q_idx, kv_idx: score * SLOPES[h],
}
MASK_MODS: dict[str, Callable[..., Tensor]] = {
    "causal": lambda b, h, q_idx, kv_idx: q_idx >= kv_idx,
    "window of 512": lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (q_idx - kv_idx < 512),
}


def tensors(length: int, heads: int = HEADS, *, gradients: bool = False) -> list[Tensor]:
    return [torch.randn(1, heads, length, WIDTH).requires_grad_(gradients) for _ in range(3)]


def call(side: str, length: int, score_mod: ScoreMod | None, mask_mod: Callable[..., Tensor]) -> Work:
    """Build a side's mask and return its call without gradients."""
    inputs = tensors(length, EAGER_HEADS if side == "eager" else HEADS)
    if side == "attent":
        blocks, attention = attent.create_block_mask(mask_mod, None, None, length, length), attent.flex_attention
    else:
        blocks = pytorch.create_block_mask(mask_mod, None, None, length, length, device="cpu")
        attention: Any = torch.compile(pytorch.flex_attention) if side == "compiled" else pytorch.flex_attention

    def work() -> object:
        with torch.no_grad(), warnings.catch_warnings():
            # eager FlexAttention warns that it stores a table
            warnings.simplefilter("ignore")
            return attention(*inputs, score_mod=score_mod, block_mask=blocks)

    return work


def forward() -> None:
    """Measure each score_mod under a causal mask, and ALiBi in a window."""
    title = f"FlexAttention, forward, T = {LENGTH:,}, B = 1, H = {HEADS}, D = {WIDTH}, float32"
    head(f"{title}; eager with {EAGER_HEADS} heads, times {HEADS // EAGER_HEADS}")
    rows = []
    cases = [(name, "causal") for name in SCORE_MODS] + [("ALiBi", "window of 512")]
    for score, mask in cases:
        torch._dynamo.reset()
        works = {
            side: call(side, LENGTH, SCORE_MODS[score], MASK_MODS[mask]) for side in ("eager", "compiled", "attent")
        }
        times = milliseconds(works, rounds=1)
        times["eager"] *= HEADS / EAGER_HEADS
        ratios = [f"{times[side] / times['attent']:.2f}" for side in ("eager", "compiled")]
        rows.append([f"{mask}, {score}", *(f"{times[side]:.0f}" for side in works), *ratios])
    table(["", "PyTorch eager, ms", "compiled, ms", "attent, ms", "eager / attent", "compiled / attent"], rows)


def fresh_peak() -> float:
    """Reset this process's peak memory, and return its current memory in MiB.

    Imports temporarily took more.
    """
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak()


def once(side: str, length: int) -> None:
    """Build a side's causal mask and attend with ALiBi; with attent's gradients for "training"."""
    if side == "training":
        training_step(length, SCORE_MODS["ALiBi"])()
    else:
        call(side, length, SCORE_MODS["ALiBi"], MASK_MODS["causal"])()


def growth(side: str, length: int) -> None:
    """Print by how many MiB a mask and a call make this process grow; all sides are measured in the same way."""
    # imports of the first call do not count
    once(side, 256)
    torch._dynamo.reset()
    # the input tensors do not count
    inputs, before = tensors(length, EAGER_HEADS if side == "eager" else HEADS), fresh_peak()
    del inputs
    once(side, length)
    print(peak() - before)


def memory() -> None:
    """Measure the growth of fresh processes: the peak memory minus that with only the tensors."""
    head(
        f"FlexAttention, causal and ALiBi: growth of a fresh process, MiB, H = {HEADS}, D = {WIDTH}; eager with "
        f"{EAGER_HEADS} heads"
    )
    rows = []
    for length in (LENGTH // 2, LENGTH, 2 * LENGTH):
        cells = []
        for side in ("eager", "compiled", "attent", "training"):
            # at twice the length eager's tables would take 8 GiB
            is_left_out = side == "eager" and length > LENGTH
            command = [sys.executable, __file__, "--growth", side, str(length)]
            process = None if is_left_out else subprocess.run(command, capture_output=True, text=True, check=False)
            cells.append("–" if process is None or process.returncode else f"{float(process.stdout.split()[-1]):.0f}")
        rows.append([f"{length:,}", *cells])
    table(["keys", "PyTorch eager", "compiled", "attent", "attent, forward + backward"], rows)


def training_step(length: int, score_mod: ScoreMod | None) -> Work:
    inputs = tensors(length, gradients=True)
    blocks = attent.create_block_mask(MASK_MODS["causal"], None, None, length, length)
    return lambda: torch.autograd.grad(
        attent.flex_attention(*inputs, score_mod=score_mod, block_mask=blocks).sum(), inputs
    )


def training() -> None:
    """Measure forward and backward; PyTorch's has no backward on a CPU."""
    head(f"FlexAttention, forward + backward, causal, B = 1, H = {HEADS}, D = {WIDTH}, float32")
    rows = []
    for length in (LENGTH // 2, LENGTH, 2 * LENGTH):
        works = {name: training_step(length, score_mod) for name, score_mod in SCORE_MODS.items()}
        rows.append([f"{length:,}", *(f"{time / 1000:.2f}" for time in milliseconds(works, rounds=1).values())])
    table(["keys, seconds", *SCORE_MODS], rows)


PARTS = {"forward": forward, "memory": memory, "training": training}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--growth"]:
        growth(sys.argv[2], int(sys.argv[3]))
    else:
        run(PARTS, __doc__)
