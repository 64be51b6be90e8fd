"""A hierarchical encoder: recurrent layers over the words of each sentence, then over the sentences."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attent.layers.recurrent import BidirectionalRecurrent, Cell, ends
from attent.types import Features, Lengths

# A longer sentence is split after this many tokens, so that memory is linear in the length of the text.
LONGEST = 64
# The number of sentences that are encoded together is a multiple of this, so that no bit of a sentence depends on it.
ROWS = 8


class Sentences(NamedTuple):
    """The place of each token in its text.

    Args:
        number: the number of the token's sentence, from 0, (B, T).
        word: the number of the token in its sentence, from 0, (B, T).
    """

    number: Tensor
    word: Tensor

    @classmethod
    def of(cls, is_end: Tensor) -> Sentences:
        """Split texts after each token that ends a sentence (B, T), or after the last one of several in a row."""
        positions = torch.arange(is_end.shape[1], device=is_end.device)
        begins = F.pad((is_end[:, :-1] & ~is_end[:, 1:]).int(), (1, 0), value=1)[:, : len(positions)]  # (B, T)
        word = positions - (positions * begins).cummax(1).values
        return cls((word % LONGEST == 0).cumsum(1) - 1, word % LONGEST)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The (begin, end) of each sentence of the first text, in tokens, the end excluded."""
        return [*pairwise([0, *accumulate(torch.bincount(self.number[0]).tolist())])]


class SentenceEncoder(nn.Module):
    """An encoder of words, whose last outputs are the vectors of sentences, and an encoder of these vectors.

        h_ij = words(x_i1 … x_in)_j,  v_i = [h→_in; h←_i1],  s_i = sentences(v_1 … v_m)_i

    x_ij is the embedding of word j of sentence i, which has n_i words. The feature of a word is s_i, or, with words,
    h_ij and s_i in the order [h→; s→; h←; s←]. In both cases there is one feature per word, so that a softmax attention
    has a weight α_ij for each word; the weight of a sentence is the sum β_i over its words.

    Without words, those of a sentence share its weight, α_ij = β_i/n_i, where β_i = n_i exp e(q, s_i) / Σ_k n_k exp
    e(q, s_k): a decoder sees one vector per sentence. With words and the score "general", α_ij ∝ exp(qᵀ W h_ij) exp(qᵀ
    U s_i), the product of an attention to words and one to sentences, normalized again.

    Sources: Li et al. (2015), §3.2 and 3.3, arXiv 1506.01057, whose layers are LSTMs in one direction, and whose
    decoder is hierarchical too; Nallapati et al. (2016), §2.4, arXiv 1602.06023, for the product of both attentions.

    Args:
        cell: "gru" or "lstm".
        input_width: features of the embedding of a word.
        width: features of one direction of both encoders.
        layers: the number of layers of the encoder of words; that of sentences has one.
        dropout: the dropout probability between layers in training, 0 to 1.
        with_words: whether the features include h_ij.
    """

    def __init__(
        self, cell: Cell, input_width: int, width: int, layers: int, dropout: float, *, with_words: bool
    ) -> None:
        super().__init__()
        self.with_words = with_words
        self.words = BidirectionalRecurrent(cell, input_width, width, layers, dropout)
        self.sentences = BidirectionalRecurrent(cell, 2 * width, width)

    def forward(self, features: Features, lengths: Lengths, is_end: Tensor) -> Features:
        """Encode texts.

        Args:
            features: the embedded words, right-padded, (B, T, input_width).
            lengths: the number of real words of each text, (B,).
            is_end: whether a word is the last of a sentence, (B, T); without any, a text is a single sentence.

        Returns:
            The features of words, (B, T, 2 width), or (B, T, 4 width) with words, zeros at padding.
        """
        is_real = torch.arange(is_end.shape[1], device=is_end.device) < lengths[:, None]
        number, word = (numbers.masked_fill(~is_real, 0) for numbers in Sentences.of(is_end))
        counts = number.amax(1) + 1  # sentences of each text, (B,)
        first = counts.cumsum(0) - counts
        rows, longest = -(-int(counts.sum()) // ROWS) * ROWS, int(word.max()) + 1
        row = first[:, None] + number  # the sentence of each token among those of all texts, (B, T)
        grid = features.new_zeros(rows, longest, features.shape[-1]).index_put(
            (row[is_real], word[is_real]), features[is_real]
        )
        words_of = torch.bincount(row[is_real], minlength=rows)
        words = self.words(grid, words_of)  # (rows, longest, 2 width)
        rows_of = (first[:, None] + torch.arange(int(counts.max()), device=first.device)).clamp(max=rows - 1)
        sentences = self.sentences(ends(words, words_of)[rows_of], counts)  # (B, most sentences, 2 width)
        vectors = sentences[torch.arange(len(row), device=row.device)[:, None], number]  # (B, T, 2 width)
        if self.with_words:
            pairs = zip(words[row, word].chunk(2, -1), vectors.chunk(2, -1), strict=True)
            vectors = torch.cat([half for pair in pairs for half in pair], -1)
        return vectors.masked_fill(~is_real[..., None], 0.0)
