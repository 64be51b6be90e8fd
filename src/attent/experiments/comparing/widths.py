"""Why scores are divided by √Dk: how widely an untrained query looks, with and without, as its width grows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from attent.attention import attend
from attent.attention.capture.watch import watch
from attent.data.batches import Sequences
from attent.data.text import Pair
from attent.data.tokenizer import CharTokenizer
from attent.models.settings import ModelSettings, build

KEYS, QUERIES = 32, 256


def of_random(score: str, width: int, seed: int = 0) -> float:
    """The entropy in nats of a query among KEYS keys, all of independent features of variance 1; log KEYS is the most.

    Then q·k has variance Dk (Vaswani et al. 2017, §3.2.1, footnote 4, arXiv:1706.03762).
    """
    dice = torch.Generator().manual_seed(seed)
    query, key = (torch.randn(1, count, width, generator=dice) for count in (QUERIES, KEYS))
    return float(attend(query, key, key, score=score, return_map=True)[1].entropy().mean())


def of_model(settings: ModelSettings, pairs: Sequence[Pair], seed: int = 1) -> float:
    """The same of an untrained Transformer's first layer over the sources of pairs, each of whose tokens is a query, in nats."""
    tokenizer = CharTokenizer.learn(pair.source for pair in pairs)
    sequences = Sequences([tokenizer.encode(pair.source) for pair in pairs])
    source = torch.from_numpy(sequences.pad(np.arange(len(pairs))))
    lengths = torch.from_numpy(sequences.lengths)
    torch.manual_seed(seed)
    model = build(settings, tokenizer.size, tokenizer.size).eval()
    with torch.no_grad(), watch(model) as seen:
        model.encode(source, lengths)
    entropy = seen["encoder.layers.0.self_attention"].entropy().mean(1)  # (B, T)
    return float(entropy[torch.arange(source.shape[1]) < lengths[:, None]].mean())
