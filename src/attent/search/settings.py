"""Settings of a search."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import BaseModel, Field, model_validator

# The largest whole number that a float64 holds exactly with all those below it.
MAX_TOKENS = 2**53
LengthForm = Literal["wu", "length"]
# Of one source.
MAX_HYPOTHESES = 10_000


class SearchSettings(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Settings of a search for translations; the defaults are greedy search.

    Args:
        beam: number of hypotheses, K. With 1 every step takes the most probable token and the first EOS ends the
            sentence, whatever the length penalty; with more the search ends when no running hypothesis can become one
            of the best.
        n_best: translations of each source; at most the beam, any number of samples.
        length_penalty: α, to which `length_form` is raised; 0 ranks by log-probability alone.
        length_form: of |Y| tokens, EOS included: (5 + |Y|) / 6 of Wu et al. (2016), arXiv 1609.08144, equation 14
            ("wu"), or |Y|, as Marian and Hugging Face's `generate` have it ("length").
        minimum_length: tokens that a translation must have, EOS not counted; a token of the language that it begins
            with is counted.
        maximum_length: tokens that it may have, counted alike (None: no bound of this kind).
        maximum_factor: tokens that it may have for each source token (None: no bound of this kind). Without either
            bound the translation of Tk tokens may have 2 Tk + 32; with both the smaller one holds.
        no_repeat_ngram: n-grams of this length do not come twice in a translation; 0 forbids nothing.
        sample: draw each token at random instead; n_best translations are drawn independently.
        temperature: divides the log-probabilities before drawing.
        top_k: draw among the k most probable tokens only (None: all). Fan et al. (2018), §5.1, arXiv 1805.04833.
        top_p: draw among the fewest most probable tokens that together have at least this probability. Holtzman et al.
            (2020), §3.1, arXiv 1904.09751.
        seed: of the draws; a source's draws are a function of it and of the source alone.
    """

    beam: int = Field(default=1, ge=1, le=MAX_HYPOTHESES)
    n_best: int = Field(default=1, ge=1, le=MAX_HYPOTHESES)
    length_penalty: float = Field(default=0.6, ge=0)
    length_form: LengthForm = "wu"
    minimum_length: int = Field(default=0, ge=0, le=MAX_TOKENS)
    maximum_length: int | None = Field(default=None, ge=1, le=MAX_TOKENS)
    maximum_factor: float | None = Field(default=None, gt=0)
    no_repeat_ngram: int = Field(default=0, ge=0)
    sample: bool = False
    temperature: float = Field(default=1.0, gt=0)
    top_k: int | None = Field(default=None, ge=1)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _check_combinations(self) -> SearchSettings:
        if self.sample and self.beam > 1:
            raise ValueError(f"samples need no beam, got sample = true and beam = {self.beam}")
        if not self.sample and self.n_best > self.beam:
            raise ValueError(f"n_best must be at most the beam = {self.beam}, got {self.n_best}")
        if not self.sample and (self.temperature != 1 or self.top_k is not None or self.top_p != 1):
            raise ValueError("temperature, top_k and top_p are for samples; set sample = true")
        if self.maximum_length is not None and self.minimum_length > self.maximum_length:
            raise ValueError(
                f"minimum_length must be at most maximum_length = {self.maximum_length}, got {self.minimum_length}"
            )
        return self

    def limits(self, lengths: np.ndarray, longest: int | None = None) -> np.ndarray:
        """Return the most tokens of each translation, from its own source's length alone: (B,) → (B,).

        Args:
            lengths: tokens of each source, (B,).
            longest: the most tokens that the model can read, BOS included; None if there is no limit.
        """
        if self.maximum_factor is not None:
            limits = np.clip(self.maximum_factor * lengths, 1, self.maximum_length or MAX_TOKENS).astype(np.int64)
        elif self.maximum_length is not None:
            limits = np.full_like(lengths, self.maximum_length)
        else:
            limits = 2 * lengths + 32
        return limits if longest is None else np.minimum(limits, longest - 1)


class GenerationSettings(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Settings of text generation; the defaults are greedy decoding, which takes the most probable token at every step.

    Args:
        max_new_tokens: tokens after the prompt, at most.
        sample: draw each token at random instead.
        temperature, top_k, top_p: as in `SearchSettings`.
        seed: of the draws; a text's draws are a function of it, of the prompt and of the copy alone.
        copies: texts drawn for each prompt.
    """

    max_new_tokens: int = Field(default=64, ge=1, le=MAX_TOKENS)
    sample: bool = False
    temperature: float = Field(default=1.0, gt=0)
    top_k: int | None = Field(default=None, ge=1)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int = Field(default=0, ge=0)
    copies: int = Field(default=1, ge=1, le=MAX_HYPOTHESES)

    @model_validator(mode="after")
    def _check_combinations(self) -> GenerationSettings:
        if not self.sample and (self.temperature != 1 or self.top_k is not None or self.top_p != 1 or self.copies != 1):
            raise ValueError("temperature, top_k, top_p and copies are for samples; set sample = true")
        return self


GREEDY = SearchSettings()
