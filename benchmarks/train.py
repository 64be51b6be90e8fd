"""Training a small translator beside plain PyTorch: source and target tokens a second on the same batches, both sides in turn.

The peers are `nn.Transformer` of the same size in a loop as tutorials have it, but with length buckets: in float32, under bfloat16
autocast, and compiled besides. Multi30k from DIR, one vocabulary of BPE pieces.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from _sides import head, peak, table
from torch import Tensor, nn
from torch.nn import functional as F

from attent.data import tokenizers
from attent.data.batches import Batch, BatchSize, Bitext
from attent.data.text import Pair
from attent.data.tokenizer import PAD
from attent.models.transformer import Transformer
from attent.models.transformer_settings import PRESETS, TransformerSettings
from attent.training.loss import loss_of
from attent.training.memory import keep_little
from attent.training.optimizer import optimizer_of
from attent.training.pace import Precision
from attent.training.settings import TrainingSettings

Step = Callable[[Batch], None]
SMOOTHING = 0.1


class Plain(nn.Module):
    """nn.Transformer with embeddings, positions and a tied output."""

    def __init__(self, size: dict[str, int], pieces: int, dropout: float) -> None:
        super().__init__()
        width = size["width"]
        self.embedding = nn.Embedding(pieces, width, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        place = torch.arange(512.0)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        self.register_buffer("positions", torch.stack((place.sin(), place.cos()), -1).flatten(1))
        self.dropout = nn.Dropout(dropout)
        self.transformer = nn.Transformer(
            width,
            size["heads"],
            size["encoder_layers"],
            size["decoder_layers"],
            size["feed_forward"],
            dropout,
            batch_first=True,
            norm_first=True,
        )

    def embedded(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.embedding(tokens) * self.embedding.embedding_dim**0.5 + self.positions[: tokens.shape[1]])  # pyright: ignore[reportIndexIssue]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        hidden, ahead = source == PAD, torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        found = self.transformer(
            self.embedded(source), self.embedded(target), tgt_mask=ahead, src_key_padding_mask=hidden, memory_key_padding_mask=hidden,
            tgt_is_causal=True,
        )  # fmt: skip
        return F.linear(found, self.embedding.weight)


def plain(size: dict[str, int], pieces: int, precision: Precision, *, compiled: bool = False) -> Step:
    model = Plain(size, pieces, 0.1).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98))

    def loss(batch: Batch) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            logits = model(batch.source, batch.target_in)
        return F.cross_entropy(logits.float().flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING)

    whole = torch.compile(loss, dynamic=True) if compiled else loss

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        whole(batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def ours(size: dict[str, int], pieces: int, precision: Precision) -> Step:
    model = Transformer(TransformerSettings(**size, norm="pre", dropout=0.1, share_embeddings="all"), pieces, pieces).train()  # pyright: ignore[reportArgumentType]
    parameters = list(model.parameters())
    optimizer = optimizer_of(parameters, TrainingSettings(updates=1, batch_tokens=1, learning_rate=1e-3))

    def step(batch: Batch) -> None:
        loss_of(model, batch, SMOOTHING, precision)[0].backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def read(folder: Path, pieces: int) -> Bitext:
    import gzip

    sides = [gzip.decompress((folder / f"tok/train.lc.norm.tok.{of}.gz").read_bytes()).decode().splitlines() for of in ("en", "de")]
    tokenizer = tokenizers.learn("bpe", sides[0] + sides[1], pieces)
    return Bitext([Pair(*pair) for pair in zip(*sides, strict=True)], tokenizer, tokenizer, keys=1)


def measure(sides: dict[str, Step], batches: Iterator[Batch], rounds: int, updates: int) -> dict[str, list[float]]:
    """Tokens a second of each side in each round; a round has as many updates of each side, of the same batches."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        some = list(itertools.islice(batches, updates))
        tokens = sum(int(batch.source_lengths.sum()) + batch.tokens for batch in some)
        for name, step in sides.items():
            started = time.perf_counter()
            for batch in some:
                step(batch)
            if number:
                found[name].append(tokens / (time.perf_counter() - started))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where Multi30k is")
    parser.add_argument("--preset", default="tiny", choices=PRESETS)
    parser.add_argument("--pieces", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=4096, help="target tokens a batch, padding included")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=10, help="of each side a round")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out, which takes minutes")
    asked = parser.parse_args()
    torch.manual_seed(0)
    keep_little()
    data, size = read(asked.folder, asked.pieces), PRESETS[asked.preset]
    pieces = asked.pieces
    sides: dict[str, Step] = {
        "attent, float32": ours(size, pieces, "float32"),
        "attent, bfloat16": ours(size, pieces, "bfloat16"),
        "nn.Transformer, float32": plain(size, pieces, "float32"),
        "nn.Transformer, bfloat16 autocast": plain(size, pieces, "bfloat16"),
    }
    if not asked.no_compile:
        sides["nn.Transformer, bfloat16 autocast, torch.compile"] = plain(size, pieces, "bfloat16", compiled=True)
    head(f"Training, {asked.preset}, {pieces:,} pieces, batches of {asked.tokens:,} tokens, Multi30k English to German")
    found = measure(sides, data.endless(BatchSize(tokens=asked.tokens), 1), asked.rounds, asked.updates)
    best = {name: max(rates) for name, rates in found.items()}
    fastest = max(rate for name, rate in best.items() if name.startswith("attent"))
    table(
        ["", "tokens/s, best round", "attent's best / this"],
        [[name, f"{rate:,.0f}", f"{fastest / rate:.2f}"] for name, rate in best.items()],
    )
    print(f"\nMost memory held, all sides in one process: {peak():,.0f} MiB.")
