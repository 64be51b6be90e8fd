"""Scoring: the probability of given translations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from attent.errors import DataError
from attent.models.model import EncoderDecoder
from attent.text.batches import ROW_MULTIPLE, BatchSize, Bitext, round_up
from attent.text.text import Pair
from attent.text.tokenizer import Tokenizer, prompt_of

# Limits the logits of one batch to a quarter of a gigabyte with a vocabulary of 32,000.
BATCH = BatchSize(tokens=2048)


@dataclass(frozen=True)
class PairScore:
    """The probability of a pair's target given its source.

    Args:
        log_probability: log P(Y | X) in nats, including EOS but not the prompt, such as a language token.
        tokens: number of target tokens, including EOS but not the prompt.
    """

    log_probability: float
    tokens: int

    @property
    def per_token(self) -> float:
        """Return the log-probability per token, in nats."""
        return self.log_probability / self.tokens


@torch.inference_mode()
def score_pairs(
    model: EncoderDecoder[Any], pairs: Sequence[Pair], source: Tokenizer, target: Tokenizer, size: BatchSize = BATCH
) -> list[PairScore]:
    """Return the log-probability of each pair's target, computed by forced decoding.

    Args:
        model: in evaluation mode.
        pairs: sources and their translations; either may be empty.
        source: encodes the sources.
        target: encodes the targets.
        size: batch size; it does not affect the scores.

    Raises:
        DataError: a side has more tokens than the model can read.
    """
    device, prompt = next(model.parameters()).device, len(prompt_of(target))
    bitext = Bitext(pairs, source, target)
    lengths = np.maximum(bitext.source.lengths, bitext.target.lengths - 1)
    if model.longest is not None and len(too_long := (lengths > model.longest).nonzero()[0]):
        row = too_long[0]
        raise DataError(
            f"pair {row + 1} has {lengths[row]:,} tokens, more than the {model.longest:,} that this model can read"
        )
    scores = [PairScore(0.0, 1)] * len(pairs)
    for rows, _ in bitext.sorted_batches(size):
        padded_rows = np.pad(rows, (0, round_up(len(rows), ROW_MULTIPLE) - len(rows)), "edge")
        batch = bitext.batch(padded_rows).trim_padding(model.longest).to(device)
        features = model.decode(model.encode(batch.source, batch.source_lengths), batch.target_in)
        logits = model.output(features).float()  # (B, T, V)
        log_probs = logits.gather(2, batch.target_out[..., None])[..., 0] - logits.logsumexp(-1)  # (B, T)
        positions = torch.arange(log_probs.shape[1], device=device)
        is_token = (positions < batch.target_lengths[:, None]) & (positions >= prompt)
        sums = log_probs.double().masked_fill(~is_token, 0).sum(1).tolist()
        for row, total, tokens in zip(rows.tolist(), sums, batch.target_lengths.tolist(), strict=False):
            scores[row] = PairScore(total, tokens - prompt)
    return scores
