"""The equations of Firefox's translators in float64, with activations rounded to 8 bits or not.

Sources: Vaswani et al. (2017), arXiv 1706.03762, in Marian's arrangement; Kim et al. (2019), aclanthology.org/D19-5632.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from _firefox_models import EOS, HEADS, UNK, Arrays, Size, is_matrix, rounded
from torch import Tensor


class Equations:
    """A model evaluated in float64.

    Args:
        arrays: its parameters, of which matrices of 8 bits are rounded if there are factors.
        size: its architecture.
        factors: the factors by which the inputs of matrices are rounded to 8 bits; None for floats.
    """

    def __init__(self, arrays: Arrays, size: Size, factors: dict[str, float] | None = None) -> None:
        self.size, self.factors = size, factors
        self.p = {
            name: torch.from_numpy(
                array if factors is None or not is_matrix(name)
                else rounded(name, array)[0] * (np.float32(1) / rounded(name, array)[1])
            ).double()
            for name, array in arrays.items()
        }  # fmt: skip
        # the scaled inputs of each matrix, and what they are rounded to in another engine, to be taken over
        self.inputs: dict[str, Tensor] = {}
        self.given: dict[str, Tensor] = {}
        # what each layer returns, in the order of evaluation
        self.layers: dict[str, Tensor] = {}

    def product(self, name: str, x: Tensor, *, transposed: bool = False) -> Tensor:
        weight = self.p[name].T if transposed else self.p[name]
        if self.factors is None:
            self.inputs[name] = x
            return x @ weight
        factor = float(np.float32(self.factors[name]))
        scaled = self.inputs[name] = (x.float() * factor).double()
        numbers = self.given[name] if name in self.given else scaled.round().clamp(-127, 127)
        return numbers @ weight / factor

    def norm(self, name: str, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        return (
            x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * self.p[f"{name}_ln_scale"]
            + self.p[f"{name}_ln_bias"]
        )

    def attend(self, name: str, x: Tensor, memory: Tensor) -> Tensor:
        q, k, v = (
            (self.product(f"{name}_W{part}", of) + self.p[f"{name}_b{part}"]).unflatten(-1, (HEADS, -1)).transpose(0, 1)
            for part, of in (("q", x), ("k", memory), ("v", memory))
        )
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
        mixed = (weights @ v).transpose(0, 1).flatten(1)
        return self.norm(f"{name}_Wo", x + self.product(f"{name}_Wo", mixed) + self.p[f"{name}_bo"])

    def feed(self, name: str, x: Tensor) -> Tensor:
        hidden = (self.product(f"{name}_W1", x) + self.p[f"{name}_b1"]).relu()
        return self.norm(f"{name}_ffn", x + self.product(f"{name}_W2", hidden) + self.p[f"{name}_b2"])

    def unit(self, name: str, x: Tensor) -> Tensor:
        forget = (self.product(f"{name}_Wf", x) + self.p[f"{name}_bf"]).sigmoid()
        entered, cells = (1 - forget) * self.product(f"{name}_W", x), [x.new_zeros(x.shape[-1])]
        for f, new in zip(forget, entered, strict=True):
            cells.append(f * cells[-1] + new)
        return self.norm(f"{name}_ffn", x + torch.stack(cells[1:]).relu())

    def embed(self, vectors: Tensor) -> Tensor:
        half = self.size.width // 2
        angles = torch.arange(len(vectors))[:, None] * 10000.0 ** (-torch.arange(half).double() / (half - 1))
        return vectors * math.sqrt(self.size.width) + torch.cat((angles.sin(), angles.cos()), 1)

    def encode(self, source: list[int]) -> Tensor:
        """Return the memory (Tk, E) of the tokens of a source, which end with </s>."""
        memory = self.embed(self.p["Wemb" if "Wemb" in self.p else "encoder_Wemb"][source])
        for layer in range(1, self.size.encoder + 1):
            memory = self.attend(f"encoder_l{layer}_self", memory, memory)
            memory = self.layers[f"encoder_l{layer}"] = self.feed(f"encoder_l{layer}_ffn", memory)
        return memory

    def logits(self, memory: Tensor, target: list[int]) -> Tensor:
        """Return the logits (T + 1, V) before and after each token of a target."""
        table = "Wemb" if "Wemb" in self.p else "decoder_Wemb"
        x = self.embed(torch.cat((memory.new_zeros(1, memory.shape[1]), self.p[table][target])))
        for layer in range(1, self.size.decoder + 1):
            x = self.unit(f"decoder_l{layer}_rnn", x)
            x = self.attend(f"decoder_l{layer}_context", x, memory)
            x = self.layers[f"decoder_l{layer}"] = self.feed(f"decoder_l{layer}_ffn", x)
        return self.product(table, x, transposed=True) + self.p["decoder_ff_logit_out_b"]

    def greedy(self, source: list[int]) -> tuple[list[int], list[float]]:
        """Return the tokens of a translation, with </s> if it ends, and the margins of each."""
        memory, target, margins = self.encode(source), list[int](), list[float]()
        while len(target) < 2 * len(source) and EOS not in target:
            logits = self.logits(memory, target)[-1]
            logits[UNK] = -math.inf
            best = logits.topk(2)
            target.append(int(best.indices[0]))
            margins.append(float(best.values[0] - best.values[1]))
        return target, margins
