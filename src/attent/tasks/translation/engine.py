"""The base class of all translators: ours, and engines that run exported models."""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

from attent.errors import ArgumentError
from attent.search.search import Hypothesis, SourceText, Translation
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.dates.generated import InputCheck
from attent.text.batches import KEY_MULTIPLE, BatchSize, cut_batches
from attent.text.tokenizer import Tokenizer, prompt_of, respell

# Sentences per batch: enough for large matrix products, few enough for any memory.
BATCH = 128


class Engine(ABC):
    """Base class of `Translator` and of engines that run exported models; translates text within a model's limits.

    Args:
        source_tokenizer: for the text to translate.
        target_tokenizer: for the translation.
        input_check: returns the reason why a text is not valid input of this model; None if any text is valid.
        longest: maximum number of tokens that the model can read; None for no limit.
    """

    def __init__(
        self,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        input_check: InputCheck | None = None,
        longest: int | None = None,
    ) -> None:
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        self.input_check, self.longest = input_check, longest

    @property
    def longest_source(self) -> int | None:
        """Return the maximum number of tokens of a source; None for no limit."""
        return None if self.longest is None else self.longest // KEY_MULTIPLE * KEY_MULTIPLE

    def read(self, text: str | SourceText) -> SourceText:
        """Respell, encode and check a text; a text that has already been read is returned unchanged."""
        if isinstance(text, SourceText):
            return text
        spelling, ids = respell(text, self.source_tokenizer)
        longest, refusal = self.longest_source, None
        if longest is not None and len(ids) > longest:
            refusal = f"not translated: {len(ids)} tokens, more than the {longest} that this model can read"
        elif spelling and self.input_check:
            refusal = self.input_check(spelling)
        # four bytes per token, since the texts of many requests may be queued
        return SourceText(text, spelling, array("i", ids), refusal)

    @overload
    def translate(  # pyright: ignore[reportOverlappingOverload]
        self,
        texts: str | SourceText,
        settings: SearchSettings = ...,
        *,
        prefixes: str | None = ...,
        batch: int | BatchSize = ...,
    ) -> str: ...
    @overload
    def translate(
        self,
        texts: Sequence[str | SourceText],
        settings: SearchSettings = ...,
        *,
        prefixes: Sequence[str] | None = ...,
        batch: int | BatchSize = ...,
    ) -> list[str]: ...
    def translate(
        self,
        texts: str | SourceText | Sequence[str | SourceText],
        settings: SearchSettings = GREEDY,
        *,
        prefixes: Any = None,
        batch: int | BatchSize = BATCH,
    ) -> str | list[str]:
        """Translate a text, or a list of texts in order. An empty or refused text has an empty translation.

        Args:
            texts: a list of sentences, for which a list is returned, or a single one, for which a string is returned;
                each a string or a result of `read`.
            settings: search settings.
            prefixes: the forced beginning of each translation, a string for a single text; none by default.
            batch: batch size, in texts if an int; translations do not depend on it.
        """
        if isinstance(texts, str | SourceText):
            return self.translate([texts], settings, prefixes=None if prefixes is None else [prefixes], batch=batch)[0]
        return [best[0].text for best in self.search(texts, settings, prefixes=prefixes, batch=batch)]

    @overload
    def search(  # pyright: ignore[reportOverlappingOverload]
        self,
        texts: str | SourceText,
        settings: SearchSettings = ...,
        *,
        prefixes: str | Sequence[int] | None = ...,
        batch: int | BatchSize = ...,
    ) -> list[Translation]: ...
    @overload
    def search(
        self,
        texts: Sequence[str | SourceText],
        settings: SearchSettings = ...,
        *,
        prefixes: Sequence[str | Sequence[int]] | None = ...,
        batch: int | BatchSize = ...,
    ) -> list[list[Translation]]: ...
    def search(
        self,
        texts: str | SourceText | Sequence[str | SourceText],
        settings: SearchSettings = GREEDY,
        *,
        prefixes: Any = None,
        batch: int | BatchSize = BATCH,
    ) -> list[Translation] | list[list[Translation]]:
        """Return the n_best translations of a text, or of each text of a list, with their scores, the best first.

        Arguments as for `translate`; a prefix may also be the ids of its tokens.

        Raises:
            ArgumentError: the numbers of prefixes and texts differ.
        """
        if isinstance(texts, str | SourceText):
            return self.search([texts], settings, prefixes=None if prefixes is None else [prefixes], batch=batch)[0]
        if isinstance(prefixes, str) or (prefixes is not None and len(prefixes) != len(texts)):
            count = repr(prefixes) if isinstance(prefixes, str) else len(prefixes)
            raise ArgumentError(f"there must be a prefix for each of {len(texts)} texts, got {count}")
        forced = [
            self.target_tokenizer.encode(prefix) if isinstance(prefix, str) else [*prefix]
            for prefix in prefixes or [()] * len(texts)
        ]
        if any(isinstance(token, str) for tokens in forced for token in tokens):
            raise ArgumentError(f"a prefix must be a string or the ids of its tokens, got {prefixes}")
        prompt = prompt_of(self.target_tokenizer)
        forced = [tokens if tuple(tokens[: len(prompt)]) == prompt else [*prompt, *tokens] for tokens in forced]
        sources = [self.read(text) for text in texts]
        encoded = [() if source.refusal else source.ids for source in sources]
        decode = self.target_tokenizer.decode
        return [
            [
                Translation(item.tokens, item.log_probability, item.length_penalty, decode(item.tokens), source)
                for item in n_best
            ]
            for source, n_best in zip(sources, self.search_encoded(encoded, forced, settings, batch), strict=True)
        ]

    @abstractmethod
    def search_encoded(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]],
        settings: SearchSettings,
        batch: int | BatchSize,
    ) -> list[list[Hypothesis]]:
        """Return the n_best translations of each source as tokens; an empty source has an empty translation.

        Args:
            sources: token ids of each text.
            prefixes: token ids that each translation begins with.
            settings: search settings.
            batch: batch size, in texts if an int.
        """

    def length_batches(self, lengths: np.ndarray, batch: int | BatchSize) -> Iterator[np.ndarray]:
        """Cut sources into batches of similar length, the shortest first; empty and overlong sources are left out.

        Args:
            lengths: number of tokens of each source.
            batch: batch size, in texts if an int.

        Returns:
            The indices of each batch's sources.
        """
        order = np.argsort(lengths, kind="stable")
        order = order[(lengths[order] > 0) & (lengths[order] <= (self.longest_source or np.inf))]
        return cut_batches(order, lengths, BatchSize(pairs=batch) if isinstance(batch, int) else batch)
