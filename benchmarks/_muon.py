"""The command `attent` with Muon instead of AdamW for matrices, for cells of benchmarks/quality.py.

Matrices other than embeddings move by the orthogonalized moving average of their gradients; everything else has AdamW:

    m ← μ m + (1 − μ) g,    W ← (1 − η λ) W − η s √max(A, B) · ortho((1 − μ) g + μ m),    μ = 0.95, λ = 0.1

`ortho` sets all singular values to about 1 by five Newton–Schulz steps. s = 0.2 gives the updates the root mean
square of AdamW's. torch.optim.Muon computes in bfloat16 and one matrix after another, which is slow on processors
without it.

Source: Jordan et al. (2024), https://kellerjordan.github.io/posts/muon; Liu et al. (2025), §2.2, arXiv 2502.16982.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from attent.cli import main
from attent.training import optimizer

MOMENTUM, WEIGHT_DECAY, STEPS = 0.95, 0.1, 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonalized(matrices: Tensor) -> Tensor:
    """Return matrices, (N, A, B), with the same singular vectors, and singular values of about 1."""
    is_high = matrices.shape[1] > matrices.shape[2]
    result = matrices.mT if is_high else matrices
    result = result / (result.norm(dim=(1, 2), keepdim=True) + 1e-7)
    first, second, third = COEFFICIENTS
    for _ in range(STEPS):
        gram = result @ result.mT
        result = torch.baddbmm(result, torch.baddbmm(gram, gram, gram, beta=second, alpha=third), result, beta=first)
    return result.mT if is_high else result


class Muon(torch.optim.AdamW):
    """AdamW whose first group, the matrices, has Muon; the scale s is the environment's MUON_SCALE."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update all parameters that have gradients."""
        groups, scale = self.param_groups, float(os.environ["MUON_SCALE"])
        rate = groups[0]["lr"]
        by_shape: defaultdict[torch.Size, list[tuple[nn.Parameter, Tensor]]] = defaultdict(list)
        for parameter in groups[0]["params"]:
            if parameter.grad is not None:
                by_shape[parameter.shape].append((parameter, parameter.grad))
        for shape, parameters in by_shape.items():
            momenta = []
            for parameter, gradient in parameters:
                momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                momenta.append(gradient.lerp(momentum.lerp_(gradient, 1 - MOMENTUM), MOMENTUM))
            for (parameter, _), update in zip(parameters, orthogonalized(torch.stack(momenta)), strict=True):
                parameter.mul_(1 - rate * WEIGHT_DECAY).add_(update, alpha=-rate * scale * max(shape) ** 0.5)
        self.param_groups = groups[1:]
        try:
            super().step()
        finally:
            self.param_groups = groups


if __name__ == "__main__":
    optimizer.OPTIMIZERS["adamw"] = Muon
    main()
