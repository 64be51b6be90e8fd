"""Training an RNN encoder-decoder with attention beside plain PyTorch: source and target tokens a second on the same batches, in turn.

The peers are what tutorials have, with length buckets besides: `nn.GRU` both ways over the source, and a loop of `nn.GRUCell` with
Bahdanau's attention, its keys projected once a sentence and the output layer applied to all steps at once; in float32 and under
bfloat16 autocast, their encoder with packed sequences and without. Multi30k from DIR, the sizes of configs/multi30k-bahdanau.toml.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from _sides import head, peak, table
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from train import SMOOTHING, Step, measure, read

from attent.data.batches import Batch, BatchSize
from attent.data.tokenizer import PAD
from attent.models.rnn import RNN
from attent.models.rnn_settings import RnnSettings
from attent.training.loss import loss_of
from attent.training.memory import keep_little
from attent.training.optimizer import optimizer_of
from attent.training.pace import Precision
from attent.training.settings import TrainingSettings

EMBEDDING = WIDTH = ENCODER = 256
DROPOUT = 0.2


class Plain(nn.Module):
    """Bahdanau's model, a step after another."""

    def __init__(self, pieces: int, *, packed: bool) -> None:
        super().__init__()
        self.packed = packed
        self.source, self.target = (nn.Embedding(pieces, EMBEDDING, padding_idx=PAD) for _ in range(2))
        for embedding in (self.source, self.target):
            nn.init.normal_(embedding.weight, std=EMBEDDING**-0.5)
        self.dropout = nn.Dropout(DROPOUT)
        self.encoder = nn.GRU(EMBEDDING, ENCODER, bidirectional=True, batch_first=True)
        self.first = nn.Linear(2 * ENCODER, WIDTH)
        self.of_key, self.of_query = nn.Linear(2 * ENCODER, 2 * ENCODER, bias=False), nn.Linear(WIDTH, 2 * ENCODER, bias=False)
        self.score = nn.Linear(2 * ENCODER, 1, bias=False)
        self.cell = nn.GRUCell(EMBEDDING + 2 * ENCODER, WIDTH)
        self.readout = nn.Linear(WIDTH + EMBEDDING + 2 * ENCODER, EMBEDDING)
        self.output = nn.Linear(EMBEDDING, pieces)
        self.output.weight = self.target.weight

    def encoded(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        embedded = self.dropout(self.source(source))
        if self.packed:
            read, last = self.encoder(pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False))
            memory, _ = pad_packed_sequence(read, batch_first=True, total_length=source.shape[1])
        else:
            memory, last = self.encoder(embedded)
        return self.dropout(memory), torch.tanh(self.first(torch.cat((last[0], last[1]), -1)))

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        memory, state = self.encoded(source, lengths)
        keys, hidden = self.of_key(memory), source == PAD
        embedded = self.dropout(self.target(target))
        shown = []
        for token in embedded.unbind(1):
            scores = self.score(torch.tanh(self.of_query(state)[:, None] + keys))[..., 0]  # (B, Tk)
            weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
            context = torch.bmm(weights[:, None].to(memory.dtype), memory)[:, 0]
            state = self.cell(torch.cat((token, context), -1), state)
            shown.append(torch.cat((state, token, context), -1))
        return self.output(self.dropout(torch.tanh(self.readout(torch.stack(shown, 1)))))


def plain(pieces: int, precision: Precision, *, packed: bool) -> Step:
    model = Plain(pieces, packed=packed).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            logits = model(batch.source, batch.source_lengths, batch.target_in)
        target = batch.target_out.flatten()
        F.cross_entropy(logits.float().flatten(0, 1), target, ignore_index=PAD, label_smoothing=SMOOTHING).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def ours(attention: str, pieces: int, precision: Precision) -> Step:
    settings = RnnSettings(
        attention=attention,  # pyright: ignore[reportArgumentType]
        embedding_width=EMBEDDING,
        width=WIDTH,
        encoder_width=ENCODER,
        embedding_dropout=DROPOUT,
        context_dropout=DROPOUT,
        output_dropout=DROPOUT,
    )
    model = RNN(settings, pieces, pieces).train()
    parameters = list(model.parameters())
    optimizer = optimizer_of(parameters, TrainingSettings(updates=1, batch_tokens=1, learning_rate=1e-3))

    def step(batch: Batch) -> None:
        loss_of(model, batch, SMOOTHING, precision)[0].backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where Multi30k is")
    parser.add_argument("--pieces", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=4096, help="target tokens a batch, padding included")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=10, help="of each side a round")
    asked = parser.parse_args()
    torch.manual_seed(0)
    keep_little()
    data, pieces = read(asked.folder, asked.pieces), asked.pieces
    precisions: tuple[Precision, ...] = ("float32", "bfloat16")
    sides: dict[str, Step] = {f"attent, bahdanau, {precision}": ours("bahdanau", pieces, precision) for precision in precisions}
    for attention in ("luong", "none"):
        sides[f"attent, {attention}, bfloat16"] = ours(attention, pieces, "bfloat16")
    for precision in precisions:
        for packed in (False, True):
            kind = "packed" if packed else "padded"
            sides[f"nn.GRU ({kind}) and nn.GRUCell, {precision}"] = plain(pieces, precision, packed=packed)
    head(f"Training, RNN, {pieces:,} pieces, batches of {asked.tokens:,} tokens, Multi30k English to German")
    found = measure(sides, data.endless(BatchSize(tokens=asked.tokens), 1), asked.rounds, asked.updates)
    best = {name: max(rates) for name, rates in found.items()}
    fastest = max(rate for name, rate in best.items() if name.startswith("attent, bahdanau"))
    table(
        ["", "tokens/s, best round", "bahdanau's best / this"],
        [[name, f"{rate:,.0f}", f"{fastest / rate:.2f}"] for name, rate in best.items()],
    )
    print(f"\nMost memory held, all sides in one process: {peak():,.0f} MiB.")
