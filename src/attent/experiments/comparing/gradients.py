"""How much of the last output's gradient reaches an input that lies further and further back."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from attent.attention.multihead import MultiHeadAttention
from attent.experiments.comparing.results import Figure, Point, Series

WIDTH, LENGTH, SEQUENCES = 64, 128, 64
# Less than this is not drawn.
LEAST = 1e-20

Layer = Callable[[Tensor], Tensor]


def layers(width: int = WIDTH) -> dict[str, Layer]:
    """One layer of each kind, as PyTorch begins with it, features (B, T, width) → (B, T, width) in float64.

    And an LSTM whose forget gates begin with a bias of 1 (Gers, Schmidhuber and Cummins 2000, "Learning to Forget").
    """
    kinds: dict[str, nn.RNNBase] = {
        "tanh RNN": nn.RNN(width, width, batch_first=True),
        "GRU": nn.GRU(width, width, batch_first=True),
        "LSTM": nn.LSTM(width, width, batch_first=True),
        "LSTM, forget bias 1": nn.LSTM(width, width, batch_first=True),
    }
    with torch.no_grad():
        open_gates = kinds["LSTM, forget bias 1"]
        # in the order input, forget, cell, output, in two biases that are added
        for name, value in (("bias_ih_l0", 1.0), ("bias_hh_l0", 0.0)):
            open_gates.get_parameter(name)[width : 2 * width] = value
    kinds = {name: kind.double() for name, kind in kinds.items()}
    attention = MultiHeadAttention(width, 1).double()
    found: dict[str, Layer] = {name: lambda inputs, kind=kind: kind(inputs)[0] for name, kind in kinds.items()}
    return found | {"attention, causal": lambda inputs: attention(inputs, mask="causal")}


def reaching(layer: Layer, *, width: int = WIDTH, length: int = LENGTH, sequences: int = SEQUENCES) -> Tensor:
    """‖∂(u·y_T)/∂x_{T−d}‖ by distance d, (length,), the mean over random inputs x and random directions u of length 1.

    Bengio, Simard and Frasconi 1994, "Learning Long-Term Dependencies with Gradient Descent is Difficult", whose point it is;
    Pascanu, Mikolov and Bengio 2013, §2 (arXiv:1211.5063).
    """
    inputs = torch.randn(sequences, length, width, dtype=torch.float64, requires_grad=True)
    direction = nn.functional.normalize(torch.randn(sequences, width, dtype=torch.float64), dim=-1)
    (found,) = torch.autograd.grad((layer(inputs)[:, -1] * direction).sum(), inputs)
    return found.norm(dim=-1).mean(0).flip(0)


def measure(seed: int = 0) -> Figure:
    """The norms of every kind of layer, before any training."""
    torch.manual_seed(seed)
    series: list[Series] = []
    for name, layer in layers().items():
        norms = reaching(layer)
        points = [Point(float(distance), norm) for distance, norm in enumerate(norms.tolist()) if norm > LEAST]
        series.append(Series(name, points))
    title = f"Gradient of the last output of one untrained layer, width {WIDTH}, {SEQUENCES} random sequences"
    return Figure("why-gradients", title, "distance of the input, steps", "norm of the gradient", series, log_y=True)
