"""Plain PyTorch as in tutorials, with which attent is compared.

It contains attention, two translators, a language model, and a training update.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attent.attention.base import Score, TanhScore
from attent.attention.scores.dot import Dot
from attent.attention.scores.scaled_dot import ScaledDot
from attent.models.settings import DecoderSettings, RnnSettings, TransformerSettings
from attent.text.batches import Batch
from attent.text.tokenizer import PAD
from attent.training.autotune import Precision
from attent.training.settings import TrainingSettings

# Maximum length of a sentence of `PlainTransformer`, in tokens.
MAX_LENGTH = 512


def sdpa(
    query: Tensor, key: Tensor, value: Tensor, scale: float, *, causal: bool = False, dropout: float = 0.0
) -> Tensor:
    """Compute attention with PyTorch's fused function."""
    return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=causal, scale=scale)


def textbook_attention(
    query: Tensor, key: Tensor, value: Tensor, score: Score, *, causal: bool = False, dropout: float = 0.0
) -> Tensor:
    """Compute the scores, then softmax, dropout and the weighted mean of the values."""
    # tutorials compute the sums of the tanh form in one product
    scores = tanh_scores(query, key, score) if isinstance(score, TanhScore) else score(query, key)  # (B, H, T, T)
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return F.dropout(torch.softmax(scores, -1), dropout) @ value


def tanh_scores(query: Tensor, key: Tensor, score: TanhScore) -> Tensor:
    """Return v·tanh(q' + k') for all pairs, computed in one tensor, (B, H, Tq, Tk)."""
    query_features, key_features = score.lower_query(query).features, score.lower_key(key).features
    hidden = torch.tanh(query_features[..., :, None, :] + key_features[..., None, :, :])  # (B, H, Tq, Tk, hidden)
    return (hidden @ score.output_weights(hidden).mT)[..., 0]


def sdpa_scale(score: Score, width: int) -> float | None:
    """Return the scale with which PyTorch's fused function computes this score; None if it cannot."""
    return score.scale(width) if isinstance(score, Dot | ScaledDot) else None


class PlainTransformer(nn.Module):
    """nn.Transformer with embeddings, sinusoidal positions, a tied output, and norms before each sub-layer.

    Args:
        settings: the sizes and the dropout.
        pieces: the size of the joint vocabulary.
    """

    positions: Tensor

    def __init__(self, settings: TransformerSettings, pieces: int) -> None:
        super().__init__()
        width = settings.width
        self.embedding = nn.Embedding(pieces, width, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.register_buffer("positions", _sinusoids(MAX_LENGTH, width))
        self.dropout = nn.Dropout(settings.dropout)
        with warnings.catch_warnings():
            # the warning that its encoder has no fast path for norms before sub-layers
            warnings.filterwarnings("ignore", message="enable_nested_tensor")
            self.transformer = nn.Transformer(
                width,
                settings.heads,
                settings.encoder_layers,
                settings.decoder_layers,
                settings.feed_forward,
                settings.dropout,
                batch_first=True,
                norm_first=True,
            )

    def embed(self, tokens: Tensor) -> Tensor:
        """Embed tokens (B, T) with their positions; return (B, T, E)."""
        return self.dropout(
            self.embedding(tokens) * self.embedding.embedding_dim**0.5 + self.positions[: tokens.shape[1]]
        )

    def forward(self, batch: Batch) -> Tensor:
        """Return the logits of every target token, (B, Tt, V)."""
        source, target = batch.source, batch.target_in
        padding, later = source == PAD, torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        features = self.transformer(
            self.embed(source), self.embed(target), tgt_mask=later, src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )  # fmt: skip
        return F.linear(features, self.embedding.weight)


class PlainLanguageModel(nn.Module):
    """nn.TransformerEncoder under a causal mask, with embeddings, sinusoidal positions and a tied output.

    Args:
        settings: the sizes, the position of the norms, the activation and the dropout.
        pieces: tokens in the vocabulary.
        longest: the maximum length of its input, in tokens.
    """

    positions: Tensor

    def __init__(self, settings: DecoderSettings, pieces: int, longest: int = MAX_LENGTH) -> None:
        super().__init__()
        width = settings.width
        self.embedding = nn.Embedding(pieces, width, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.register_buffer("positions", _sinusoids(longest, width))
        self.dropout = nn.Dropout(settings.dropout)
        layer = nn.TransformerEncoderLayer(
            width,
            settings.heads,
            settings.feed_forward,
            settings.dropout,
            activation=settings.activation,
            batch_first=True,
            norm_first=settings.norm == "pre",
        )
        self.layers = nn.TransformerEncoder(layer, settings.layers, nn.LayerNorm(width), enable_nested_tensor=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the token after each of these, (B, T, V)."""
        return F.linear(self._features(tokens), self.embedding.weight)

    @torch.no_grad()
    def generate(self, tokens: Tensor, number: int) -> Tensor:
        """Extend texts (B, T) greedily by a number of tokens.

        As in nanoGPT, each step processes the whole text again.
        """
        for _ in range(number):
            last = self._features(tokens[:, -len(self.positions) :])[:, -1]
            tokens = torch.cat((tokens, F.linear(last, self.embedding.weight).argmax(-1, keepdim=True)), 1)
        return tokens

    def _features(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        features = self.dropout(self.embedding(tokens) * self.embedding.embedding_dim**0.5 + self.positions[:length])
        later = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        return self.layers(features, mask=later, is_causal=True)


def _sinusoids(length: int, width: int) -> Tensor:
    """Return sinusoidal positions, (T, E): Vaswani et al. (2017), §3.5."""
    angles = torch.arange(float(length))[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :width]


class PlainRnn(nn.Module):
    """A bidirectional nn.GRU over the source, then a loop of nn.GRUCell with Bahdanau's attention before each step.

    Keys are projected once per sentence, and the output layer is applied to all steps together.

    Args:
        settings: the sizes and the dropout.
        pieces: the size of each vocabulary.
        packed: whether the encoder reads packed sequences, which have no padding.
    """

    def __init__(self, settings: RnnSettings, pieces: int, *, packed: bool) -> None:
        super().__init__()
        embedding, width, memory = settings.embedding_width, settings.width, settings.memory_width
        self.packed = packed
        self.source, self.target = (nn.Embedding(pieces, embedding, padding_idx=PAD) for _ in range(2))
        for table in (self.source, self.target):
            nn.init.normal_(table.weight, std=embedding**-0.5)
        self.embedding_dropout = nn.Dropout(settings.embedding_dropout)
        self.context_dropout, self.output_dropout = (
            nn.Dropout(settings.context_dropout),
            nn.Dropout(settings.output_dropout),
        )
        self.encoder = nn.GRU(embedding, settings.direction_width, bidirectional=True, batch_first=True)
        self.first = nn.Linear(memory, width)
        self.of_key, self.of_query = nn.Linear(memory, memory, bias=False), nn.Linear(width, memory, bias=False)
        self.score = nn.Linear(memory, 1, bias=False)
        self.cell = nn.GRUCell(embedding + memory, width)
        self.readout = nn.Linear(width + embedding + memory, embedding)
        self.output = nn.Linear(embedding, pieces)
        self.output.weight = self.target.weight

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the memory (B, Ts, E) of a source (B, Ts) and the decoder's initial state."""
        embedded = self.embedding_dropout(self.source(source))
        if self.packed:
            states, final = self.encoder(
                pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False)
            )
            memory, _ = pad_packed_sequence(states, batch_first=True, total_length=source.shape[1])
        else:
            memory, final = self.encoder(embedded)
        return self.context_dropout(memory), torch.tanh(self.first(torch.cat((final[0], final[1]), -1)))

    def forward(self, batch: Batch) -> Tensor:
        """Return the logits of every target token, (B, Tt, V)."""
        memory, state = self.encode(batch.source, batch.source_lengths)
        keys, padding = self.of_key(memory), batch.source == PAD
        steps: list[Tensor] = []
        for token in self.embedding_dropout(self.target(batch.target_in)).unbind(1):
            scores = self.score(torch.tanh(self.of_query(state)[:, None] + keys))[..., 0]  # (B, Ts)
            weights = scores.masked_fill(padding, -torch.inf).softmax(-1)
            context = torch.bmm(weights[:, None].to(memory.dtype), memory)[:, 0]
            state = self.cell(torch.cat((token, context), -1), state)
            steps.append(torch.cat((state, token, context), -1))
        return self.output(self.output_dropout(torch.tanh(self.readout(torch.stack(steps, 1)))))


def training_update(
    model: nn.Module, settings: TrainingSettings, precision: Precision, *, compiled: bool = False
) -> Callable[[Batch], None]:
    """Return the update function of a module: loss, gradients, clipping, Adam; autocast for 16 bits.

    Args:
        model: the module, which maps a batch to logits (B, Tt, V).
        settings: the settings of the optimizer, label smoothing and clipping.
        precision: the precision of the computation.
        compiled: whether to compile the loss with torch.compile.
    """
    parameters = list(model.train().parameters())
    device = parameters[0].device
    optimizer = torch.optim.Adam(parameters, lr=settings.learning_rate, betas=settings.betas)

    def compute_loss(batch: Batch) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            logits = model(batch)
        labels = batch.target_out.flatten()
        return F.cross_entropy(
            logits.float().flatten(0, 1), labels, ignore_index=PAD, label_smoothing=settings.label_smoothing
        )

    loss = torch.compile(compute_loss, dynamic=True) if compiled else compute_loss

    def update(batch: Batch) -> None:
        optimizer.zero_grad()
        loss(batch.to(device)).backward()
        if settings.clip is not None:
            nn.utils.clip_grad_norm_(parameters, settings.clip)
        optimizer.step()

    return update
