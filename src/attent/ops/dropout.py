"""Dropout whose mask is a function of (seed, b, h, i, j), so that every implementation and every recomputation agree.

The bits come from the integer hash "lowbias32" (Wellons 2018), two rounds of multiply and xor-shift, applied once to
the seed, once to the row (b, h, i), once to the column j and once more to their sum. The row is hashed in one step,
because nested hashes, which use their argument twice, take compilers a minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from attent.ops import native
from attent.ops.eligibility import can_run_native, needs_plain_torch

# Four elements share one 64-bit random number; PyTorch draws one for each.
BITS = 16
# From this number of features on, the library's sweep saves more time than hashing rows and columns costs.
MIN_NATIVE = 2**15
WORD = 0xFFFFFFFF
# Odd multipliers without small ratios: the primes of xxHash (Collet 2012), one for each axis of a row.
_SEQUENCE, _HEAD, _ROW = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
# Makes the hash of a column differ from that of the row with the same index.
_COLUMN = 0x5BD1E995

Word = TypeVar("Word", int, Tensor)


def _hash(bits: Word) -> Word:
    # 32-bit words in int64, truncated after each product, since compilers that fold constants do not wrap int32.
    bits = ((bits ^ (bits >> 16)) * 0x7FEB352D) & WORD
    bits = ((bits ^ (bits >> 15)) * 0x846CA68B) & WORD
    return bits ^ (bits >> 16)


@dataclass(frozen=True)
class DropoutMask:
    """The mask of kept weights in a tile, as hashes of its rows and columns."""

    row: Tensor  # (B, H, Tq, 1)
    column: Tensor  # (Tk,)
    probability: float

    @classmethod
    def of(
        cls, rows: Tensor, columns: Tensor, heads: int, batch: int, probability: float, seed: int | Tensor
    ) -> DropoutMask:
        """Hash the arguments of `keep_mask`."""
        device = columns.device
        start = _hash(seed & WORD) if isinstance(seed, int) else _hash(seed.to(device, torch.int64).reshape(1) & WORD)
        sequences = torch.arange(batch, device=device).reshape(-1, 1, 1, 1)
        head = torch.arange(heads, device=device).reshape(1, -1, 1, 1)
        row = _hash((start + _SEQUENCE * sequences + _HEAD * head + _ROW * rows.reshape(1, 1, -1, 1)) & WORD)
        return cls(row, _hash((_COLUMN + columns) & WORD), probability)

    @property
    def _is_native(self) -> bool:
        return self.column.device.type == "cpu" and threshold(self.probability) <= WORD and can_run_native()

    def keep_mask(self) -> Tensor:
        """Return a mask of the weights that are kept, boolean (B, H, Tq, Tk)."""
        if self._is_native:
            mask = torch.empty(*self.row.shape[:-1], len(self.column), dtype=torch.bool)
            words = (self.row.to(torch.int32).contiguous(), self.column.to(torch.int32).contiguous())
            native.run(
                "attent_dropout_mask", (*words, mask), self.row.numel(), len(self.column), threshold(self.probability)
            )
            return mask
        return _hash((self.row + self.column) & WORD) >= threshold(self.probability)

    def apply(self, weights: Tensor) -> Tensor:
        """Return the contiguous weights after dropout, in the order of the mask.

        Dropped weights are 0, and the others are divided by 1 − probability.
        """
        factor = 1.0 / (1.0 - self.probability)
        if not self._is_native or weights.dtype != torch.float32:
            return weights * self.keep_mask().view(weights.shape) * factor
        words, result = (self.row.to(torch.int32).contiguous(), self.column.to(torch.int32)), torch.empty_like(weights)
        sizes = self.row.numel(), self.column.numel()
        native.run("attent_dropout", (*words, weights, result), *sizes, threshold(self.probability), factor)
        return result


def threshold(probability: float) -> int:
    """Return the smallest 32-bit hash for which a weight is kept."""
    return int(probability * (WORD + 1))


def keep_mask(rows: Tensor, columns: Tensor, heads: int, batch: int, probability: float, seed: int | Tensor) -> Tensor:
    """Return a mask of the weights that are kept, boolean (B, H, Tq, Tk).

    Args:
        rows: the indices of the queries, (Tq,).
        columns: the indices of the keys, (Tk,).
        heads: H.
        batch: B.
        probability: the dropout probability, from 0 to 1.
        seed: an integer, or a tensor with one; only the lower 32 bits are used.
    """
    return DropoutMask.of(rows, columns, heads, batch, probability, seed).keep_mask()


def feature_mask(features: Tensor, probability: float, seed: int) -> DropoutMask:
    """Return the mask of features (…, E), hashed like the weights of one sequence and one head."""
    width = features.shape[-1] if features.dim() else 1
    return DropoutMask.of(torch.arange(features.numel() // width), torch.arange(width), 1, 1, probability, seed)


def dropout(features: Tensor, probability: float) -> Tensor:
    """Drop features of any shape, with random numbers from torch's generator.

    Large float32 tensors on a CPU are dropped by the hash in one sweep of the library, and in another for the
    gradients. For smaller ones each feature is compared with 16 random bits, which rounds the probability, and the
    scale with it, to a multiple of 1/65,536. Elsewhere, and in captured graphs, PyTorch drops them.
    """
    if features.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(features, probability)
    if features.numel() >= MIN_NATIVE and can_run_native(features) and not torch.is_inference_mode_enabled():
        return _Dropout.apply(features, probability, int(torch.randint(2**31 - 1, ())))
    cutoff = round(probability * 2**BITS)
    words = torch.empty(-(-features.numel() * BITS // 64), dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: features.numel()].view(features.shape)
    return features.masked_fill(bits < cutoff - 2 ** (BITS - 1), 0.0) * (2**BITS / (2**BITS - cutoff))


class _Dropout(torch.autograd.Function):
    """Dropout by the hash; it is linear, so its gradient is the same operation, to any order."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, probability: float, seed: int) -> Tensor:
        ctx.probability, ctx.seed = probability, seed
        return feature_mask(features, probability, seed).apply(features.contiguous())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        if needs_plain_torch(gradient):
            mask = feature_mask(gradient, ctx.probability, ctx.seed).keep_mask().view(gradient.shape)
            return gradient * mask / (1.0 - ctx.probability), None, None
        return _Dropout.apply(gradient, ctx.probability, ctx.seed), None, None
