"""How much of the last output's gradient reaches an input that lies further and further back."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from attent.attention.multihead import MultiHeadAttention
from attent.comparing.results import Figure, Point, Series

WIDTH, LENGTH, SEQUENCES = 64, 128, 64

Layer = Callable[[Tensor], Tensor]


def layers(width: int = WIDTH) -> dict[str, Layer]:
    """One layer of each kind, as PyTorch begins with it, features (B, T, width) → (B, T, width)."""
    kinds: dict[str, nn.Module] = {
        "tanh RNN": nn.RNN(width, width, batch_first=True),
        "GRU": nn.GRU(width, width, batch_first=True),
        "LSTM": nn.LSTM(width, width, batch_first=True),
    }
    attention = MultiHeadAttention(width, 1)
    found: dict[str, Layer] = {name: lambda inputs, kind=kind: kind(inputs)[0] for name, kind in kinds.items()}
    return found | {"attention, causal": lambda inputs: attention(inputs, mask="causal")}


def reaching(layer: Layer, *, width: int = WIDTH, length: int = LENGTH, sequences: int = SEQUENCES) -> Tensor:
    """‖∂(u·y_T)/∂x_{T−d}‖ by distance d, (length,), the mean over random inputs x and random directions u of length 1.

    Bengio, Simard and Frasconi 1994, "Learning Long-Term Dependencies with Gradient Descent is Difficult", whose point it is;
    Pascanu, Mikolov and Bengio 2013, §2 (arXiv:1211.5063).
    """
    inputs = torch.randn(sequences, length, width, requires_grad=True)
    direction = nn.functional.normalize(torch.randn(sequences, width), dim=-1)
    (found,) = torch.autograd.grad((layer(inputs)[:, -1] * direction).sum(), inputs)
    return found.norm(dim=-1).mean(0).flip(0)


def measure(seed: int = 0) -> Figure:
    """The norms of every kind of layer, before any training."""
    torch.manual_seed(seed)
    series: list[Series] = []
    for name, layer in layers().items():
        norms = reaching(layer)
        # below what float32 tells from nothing there is nothing to draw
        points = [Point(float(distance), norm) for distance, norm in enumerate(norms.tolist()) if norm > 1e-30]
        series.append(Series(name, points))
    title = f"Gradient of the last output of one untrained layer, width {WIDTH}, {SEQUENCES} random sequences"
    return Figure("why-gradients", title, "distance of the input, steps", "norm of the gradient", series, log_y=True)
