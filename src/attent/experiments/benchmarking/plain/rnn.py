"""A recurrent encoder-decoder with Bahdanau's attention, as tutorials have it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attent.data.batches import Batch
from attent.data.tokenizer import PAD
from attent.models.rnn_settings import RnnSettings


class PlainRnn(nn.Module):
    """nn.GRU both ways over the source, then a loop of nn.GRUCell that looks before each step.

    Its keys are projected once a sentence, and the output layer applied to all steps at once.

    Args:
        settings: the sizes and the dropout.
        pieces: tokens in each vocabulary.
        packed: whether the encoder reads packed sequences, in which there is no padding.
    """

    def __init__(self, settings: RnnSettings, pieces: int, *, packed: bool) -> None:
        super().__init__()
        embedding, width, memory = settings.embedding_width, settings.width, settings.memory_width
        self.packed = packed
        self.source, self.target = (nn.Embedding(pieces, embedding, padding_idx=PAD) for _ in range(2))
        for table in (self.source, self.target):
            nn.init.normal_(table.weight, std=embedding**-0.5)
        self.embedding_dropout = nn.Dropout(settings.embedding_dropout)
        self.context_dropout, self.output_dropout = nn.Dropout(settings.context_dropout), nn.Dropout(settings.output_dropout)
        self.encoder = nn.GRU(embedding, settings.direction_width, bidirectional=True, batch_first=True)
        self.first = nn.Linear(memory, width)
        self.of_key, self.of_query = nn.Linear(memory, memory, bias=False), nn.Linear(width, memory, bias=False)
        self.score = nn.Linear(memory, 1, bias=False)
        self.cell = nn.GRUCell(embedding + memory, width)
        self.readout = nn.Linear(width + embedding + memory, embedding)
        self.output = nn.Linear(embedding, pieces)
        self.output.weight = self.target.weight

    def encoded(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The memory (B, Ts, E) of a source (B, Ts), and the decoder's first state."""
        embedded = self.embedding_dropout(self.source(source))
        if self.packed:
            read, last = self.encoder(pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False))
            memory, _ = pad_packed_sequence(read, batch_first=True, total_length=source.shape[1])
        else:
            memory, last = self.encoder(embedded)
        return self.context_dropout(memory), torch.tanh(self.first(torch.cat((last[0], last[1]), -1)))

    def forward(self, batch: Batch) -> Tensor:
        """The logits of every target token, (B, Tt, V)."""
        memory, state = self.encoded(batch.source, batch.source_lengths)
        keys, hidden = self.of_key(memory), batch.source == PAD
        embedded = self.embedding_dropout(self.target(batch.target_in))
        shown = []
        for token in embedded.unbind(1):
            scores = self.score(torch.tanh(self.of_query(state)[:, None] + keys))[..., 0]  # (B, Ts)
            weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
            context = torch.bmm(weights[:, None].to(memory.dtype), memory)[:, 0]
            state = self.cell(torch.cat((token, context), -1), state)
            shown.append(torch.cat((state, token, context), -1))
        return self.output(self.output_dropout(torch.tanh(self.readout(torch.stack(shown, 1)))))
