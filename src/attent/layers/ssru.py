"""The simpler simple recurrent unit: a decoder layer's past in one vector, in place of self-attention."""

from typing import Any

import torch
from torch import nn

from attent.layers.recurrent import RecurrentState
from attent.types import Features


class SSRU(nn.Module):
    """A recurrent unit whose gate reads the input alone, so that its products do not wait for the steps before.

        f_t = σ(W_f x_t + b_f);  c_t = f_t ⊙ c_{t−1} + (1 − f_t) ⊙ W x_t;  o_t = max(0, c_t)

    c_0 is 0. Source: Kim et al. (2019), §3.2, https://aclanthology.org/D19-5632, after Lei et al. (2018), arXiv
    1709.02755.

    Args:
        width: the model width E, of the input, the state and the output.
    """

    # positions are in the embeddings alone
    position: Any = None

    def __init__(self, width: int) -> None:
        super().__init__()
        self.forget = nn.Linear(width, width)
        self.value = nn.Linear(width, width, bias=False)
        for layer in (self.forget, self.value):
            nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(self.forget.bias)

    def forward(self, features: Features, state: RecurrentState | None = None) -> tuple[Features, RecurrentState]:
        """Return o of the next T positions, (B, T, E) → (B, T, E), and the state after the last."""
        gates = torch.sigmoid(self.forget(features))
        inputs = (1 - gates) * self.value(features)
        cells = [torch.zeros_like(inputs[:, 0]) if state is None else state.hidden]
        for gate, value in zip(gates.unbind(1), inputs.unbind(1), strict=True):
            # autocast computes the gates in 16 bits; the state is summed in its own type
            cells.append(torch.addcmul(value, gate, cells[-1]))
        return torch.relu(torch.stack(cells[1:], 1)), RecurrentState(cells[-1])
