"""Hugging Face's Marian model of the same size, trained on attent's own batches in a plain loop."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import torch
from _measured import Clock, Enough, arguments, ids, model_in, say
from torch.nn import functional as F
from transformers import MarianConfig, MarianMTModel

PAD, BOS, EOS = 0, 2, 3


def model_of(like: dict[str, Any], pieces: int) -> MarianMTModel:
    """Return a Marian model of the same size as attent's Transformer, with one embedding."""
    sizes = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in of_each(like, side).items()}
    return MarianMTModel(
        MarianConfig(
            vocab_size=pieces,
            d_model=like["width"],
            activation_function="relu",
            dropout=like["dropout"],
            attention_dropout=0.0,
            max_position_embeddings=512,
            scale_embedding=True,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
            **sizes,
        )
    )


def of_each(like: dict[str, Any], side: str) -> dict[str, int]:
    """Return the sizes of an encoder or a decoder under Marian's names."""
    return {"layers": like[f"{side}_layers"], "ffn_dim": like["feed_forward"], "attention_heads": like["heads"]}


def padded(rows: list[list[int]]) -> torch.Tensor:
    """Return rows padded to one tensor."""
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def main() -> None:
    """Train and print the speed."""
    options = arguments(__doc__)
    sources, targets = (ids(options.folder / f"{side}.txt") for side in ("source", "target"))
    rows = json.loads((options.folder / "batches.json").read_text())
    batches, first = [], 0
    for number in rows:
        these = slice(first, first := first + number)
        whole = padded([[BOS, *target, EOS] for target in targets[these]])
        batches.append((padded(sources[these]), whole[:, :-1], whole[:, 1:]))
    pieces = len((options.folder / "vocabulary.txt").read_text(encoding="utf-8").splitlines())
    model = model_of(model_in(options.folder), pieces).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), fused=True)
    clock = Clock(options.warmup, options.updates)
    try:
        for update in count():
            source, target, expected = batches[update % len(batches)]
            clock.begin(int((source != PAD).sum() + (expected != PAD).sum()))
            output = model(
                input_ids=source, attention_mask=(source != PAD).long(), decoder_input_ids=target, use_cache=False
            )
            loss = F.cross_entropy(
                output.logits.flatten(0, 1), expected.flatten(), ignore_index=PAD, label_smoothing=0.1
            )
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    except Enough:
        say(
            "transformers",
            tokens_per_second=clock.rate,
            tokens=clock.tokens,
            updates=options.updates,
            threads=options.threads,
        )


if __name__ == "__main__":
    main()
