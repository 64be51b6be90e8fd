"""A trained model, ready to translate text and to show its attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attent.attention.map import AttentionMap
from attent.attention.watch import watch
from attent.data.batches import KEYS, BatchSize, Sequences, cut
from attent.data.tokenizer import START, Tokenizer
from attent.decoding.greedy import greedy
from attent.errors import ArgumentError
from attent.models.encoder_decoder import EncoderDecoder
from attent.runs.folder import read

# Sentences translated side by side, in pairs; enough for the products to be large, few enough for any memory.
BATCH = 64
STOP_LABEL = "</s>"
START_LABEL = "<s>"


@dataclass(frozen=True)
class LabelledMap:
    """Attention weights, and what their rows and columns are about.

    Args:
        weights: (1, H, Tq, Tk).
        rows: what each query is about, Tq labels; in the decoder the piece that the row's step **emits**, so that row
            t is about target piece t, not about the piece before it that the step was given.
        columns: what each key is about, Tk labels; in the decoder's self-attention the pieces given, from START on.
    """

    weights: AttentionMap
    rows: tuple[str, ...]
    columns: tuple[str, ...]


class Translator:
    """Translates text with a model and its tokenizers.

    Args:
        model: keeps the contract of `attent.models.encoder_decoder`; put into evaluation mode.
        source_tokenizer: for the text to translate.
        target_tokenizer: for the translation.
    """

    def __init__(self, model: EncoderDecoder[Any], source_tokenizer: Tokenizer, target_tokenizer: Tokenizer) -> None:
        model.eval()
        self.model, self.source_tokenizer, self.target_tokenizer = model, source_tokenizer, target_tokenizer
        self.device = next(model.parameters()).device

    def translate(self, texts: Sequence[str], *, batch: int = BATCH) -> list[str]:
        """Translate each text; the order is kept, and an empty text has an empty translation.

        Args:
            texts: one sentence each.
            batch: how many are translated side by side; a translation does not depend on it.
        """
        sources = Sequences([self.source_tokenizer.encode(text) for text in texts])
        translations = [""] * len(texts)
        order = np.argsort(sources.lengths, kind="stable")
        order = order[sources.lengths[order] > 0]
        for rows in cut(order, sources.lengths, BatchSize(pairs=batch)):
            source = torch.from_numpy(sources.padded(rows, KEYS)).to(self.device)
            lengths = torch.from_numpy(sources.lengths[rows]).to(self.device)
            for row, tokens in zip(rows, greedy(self.model, source, lengths, longest_translation(lengths)), strict=True):
                translations[row] = self.target_tokenizer.decode(tokens)
        return translations

    @torch.no_grad()
    def map(self, source: str, target: str | None = None) -> dict[str, LabelledMap]:
        """Every attention map of one translation, by the name of its module, in the order of computation.

        Args:
            source: the text to translate.
            target: a translation to look at; the model's own unless given.

        Raises:
            ArgumentError: the source is empty.
        """
        if not source:
            raise ArgumentError("an empty source has no attention to show")
        if target is None:
            target = self.translate([source])[0]
        sources = (*self.source_tokenizer.pieces(source),)
        targets = (*self.target_tokenizer.pieces(target), STOP_LABEL)
        tokens = torch.tensor([self.source_tokenizer.encode(source)], device=self.device)
        given = torch.tensor([[START, *self.target_tokenizer.encode(target)]], device=self.device)
        with watch(self.model) as seen:
            memory = self.model.encode(tokens, torch.tensor([tokens.shape[1]], device=self.device))
            self.model.decode(memory, given)
        maps = {}
        for name, weights in seen.items():
            if name.startswith("encoder."):
                maps[name] = LabelledMap(weights, sources, sources)
            elif name.endswith("cross_attention"):
                maps[name] = LabelledMap(weights, targets, sources)
            else:
                maps[name] = LabelledMap(weights, targets, (START_LABEL, *targets[:-1]))
        return maps


def longest_translation(lengths: torch.Tensor) -> torch.Tensor:
    """The most tokens that a translation may have, from the source's own length alone: 2 Tk + 32."""
    return 2 * lengths + 32


def load(path: Path | str, device: torch.device | str = "cpu") -> Translator:
    """The translator that a run folder holds.

    Raises:
        RunError: the folder is missing, damaged, or written by a newer version.
    """
    run = read(path)
    return Translator(run.model.to(device), run.source_tokenizer, run.target_tokenizer)
