"""Settings of a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field, model_validator

from attent.errors import ArgumentError, refuse

if TYPE_CHECKING:
    import numpy as np

# The integers up to this one are exact in float64.
MAX_TOKENS = 2**53
LengthForm = Literal["wu", "length"]
# Per source.
MAX_HYPOTHESES = 10_000


class SearchSettings(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Settings of a search for translations; the default is greedy search.

    With a beam of 1, every step takes the most probable token and the first EOS ends the sentence, regardless of the
    length penalty; with a larger beam, the search ends when no running hypothesis can become one of the best. Without
    `maximum_length` and `maximum_factor`, the translation of Tk tokens may have 2 Tk + 32 tokens; with both, the
    smaller limit applies. Lengths exclude EOS but include a leading language token.
    """

    beam: int = Field(
        default=1, ge=1, le=MAX_HYPOTHESES, description="Beam size: hypotheses kept at each step; 1 is greedy."
    )
    n_best: int = Field(
        default=1,
        ge=1,
        le=MAX_HYPOTHESES,
        description="Translations per source: at most the beam size, or any number of samples.",
    )
    length_penalty: float = Field(
        default=0.6, ge=0, description="Exponent of the length penalty; 0 ranks by log-probability only."
    )
    length_form: LengthForm = Field(
        default="wu",
        description="Length in the penalty: wu is (5 + length) / 6, EOS included, of Wu et al. (2016), arXiv "
        "1609.08144, equation 14; length is the length itself, as in Marian and Hugging Face's generate.",
    )
    minimum_length: int = Field(default=0, ge=0, le=MAX_TOKENS, description="Minimum tokens of a translation.")
    maximum_length: int | None = Field(
        default=None, ge=1, le=MAX_TOKENS, description="Maximum tokens of a translation; 2 x source + 32 by default."
    )
    maximum_factor: float | None = Field(
        default=None, gt=0, description="Maximum tokens of a translation per source token."
    )
    no_repeat_ngram: int = Field(
        default=0, ge=0, description="Never repeat an n-gram of this length; 0 allows repetition."
    )
    sample: bool = Field(
        default=False, description="Sample each token instead of searching for the most probable translation."
    )
    temperature: float = Field(
        default=1.0,
        gt=0,
        description="Divide log-probabilities by this before sampling: below 1 is sharper, above 1 flatter.",
    )
    top_k: int | None = Field(
        default=None, ge=1, description="Sample from the k most probable tokens. Fan et al. (2018), arXiv 1805.04833."
    )
    top_p: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="Sample from the fewest tokens that together have this probability. Holtzman et al. (2020), arXiv "
        "1904.09751.",
    )
    seed: int = Field(default=0, ge=0, description="Random seed of sampling; each source has its own random numbers.")

    @model_validator(mode="after")
    def _check_combinations(self) -> SearchSettings:
        refuse(
            (self.sample and self.beam > 1, f"sampling uses no beam, got sample = true and beam = {self.beam}"),
            (
                not self.sample and self.n_best > self.beam,
                f"n_best must be at most the beam = {self.beam}, got {self.n_best}",
            ),
            (
                not self.sample and (self.temperature != 1 or self.top_k is not None or self.top_p != 1),
                "temperature, top_k and top_p are for sampling; set sample = true",
            ),
            (
                self.maximum_length is not None and self.minimum_length > self.maximum_length,
                f"minimum_length must be at most maximum_length = {self.maximum_length}, got {self.minimum_length}",
            ),
        )
        return self

    def limits(self, lengths: np.ndarray, longest: int | None = None) -> np.ndarray:
        """Return the maximum number of tokens of each translation, based only on its source's length, (B,).

        Args:
            lengths: number of tokens of each source, (B,).
            longest: maximum number of tokens that the model can read, BOS included; None for no limit.
        """
        import numpy as np

        if self.maximum_factor is not None:
            limits = np.clip(self.maximum_factor * lengths, 1, self.maximum_length or MAX_TOKENS).astype(np.int64)
        else:
            limits = 2 * lengths + 32 if self.maximum_length is None else np.full_like(lengths, self.maximum_length)
        return limits if longest is None else np.minimum(limits, longest - 1)


class GenerationSettings(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """Settings of text generation; the default is greedy decoding, the most probable token at every step."""

    max_new_tokens: int = Field(default=64, ge=1, le=MAX_TOKENS, description="Maximum tokens after the prompt.")
    sample: bool = Field(default=False, description="Sample each token instead of taking the most probable one.")
    temperature: float = Field(
        default=1.0,
        gt=0,
        description="Divide log-probabilities by this before sampling: below 1 is sharper, above 1 flatter.",
    )
    top_k: int | None = Field(default=None, ge=1, description="Sample from the k most probable tokens.")
    top_p: float = Field(
        default=1.0, gt=0, le=1, description="Sample from the fewest tokens that together have this probability."
    )
    seed: int = Field(
        default=0, ge=0, description="Random seed of sampling; each copy of each prompt has its own random numbers."
    )
    copies: int = Field(default=1, ge=1, le=MAX_HYPOTHESES, description="Texts sampled for each prompt.")

    @model_validator(mode="after")
    def _check_combinations(self) -> GenerationSettings:
        if not self.sample and (self.temperature != 1 or self.top_k is not None or self.top_p != 1 or self.copies != 1):
            raise ArgumentError("temperature, top_k, top_p and copies are for sampling; set sample = true")
        return self


GREEDY = SearchSettings()
