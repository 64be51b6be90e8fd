"""Base class of language models that continue texts: ours and Hugging Face's."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, overload

import numpy as np
import torch
from torch import Tensor

from attent.attention.maps.attention_map import AttentionMap, LabelledMap
from attent.search.search import draw_tokens
from attent.search.settings import GenerationSettings
from attent.views.build_scene import build_scene
from attent.views.scene import Scene


@dataclass(frozen=True)
class GeneratedText:
    """A text that a language model has continued.

    Args:
        text: the prompt and its continuation.
        continuation: the generated text.
        tokens: the tokens of the continuation, with the EOS of each line that ended.
        log_probability: log P(continuation | prompt) under the model, in nats, regardless of temperature and filters.
    """

    text: str
    continuation: str
    tokens: tuple[int, ...]
    log_probability: float


class TextReader(Protocol):
    """Reads one text piece by piece, and keeps its keys and values."""

    def __call__(self, tokens: Sequence[int]) -> Tensor:
        """Read further tokens, at least one, and return the logits of the token that follows them, (V,) float32."""
        ...

    def maps(self) -> dict[str, AttentionMap] | None:
        """Return the maps of the last tokens read; None if they are not kept."""
        ...


class ContinuesText(ABC):
    """A language model that continues texts.

    Attributes:
        start: the tokens that come before every text, such as BOS.
        context: the number of tokens, `start` included, that the model should read at a time; None for no limit.
        longest: the maximum number of tokens, `start` included, that it can read; None for no limit.
        forbidden: tokens that are never chosen.
        size: the number of tokens of the vocabulary.
    """

    start: tuple[int, ...]
    context: int | None
    longest: int | None
    forbidden: Sequence[int] = ()
    size: int

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without `start`."""

    @abstractmethod
    def labels(self, tokens: Sequence[int]) -> tuple[str, ...]:
        """Return a printable label for each token."""

    @abstractmethod
    def ends(self, token: int) -> bool:
        """Return whether a token ends a text."""

    @abstractmethod
    def reader(self) -> TextReader:
        """Return a reader for a new text."""

    @abstractmethod
    def map_of_tokens(self, tokens: Sequence[int], *, gradients: bool = False) -> dict[str, LabelledMap]:
        """Return every attention map of a text that is given as tokens, without `start`."""

    @abstractmethod
    def check_prefix(self, prefix: Sequence[int]) -> None:
        """Check the tokens that a continuation begins with.

        Raises:
            ArgumentError: one of them is not a token of a text.
        """

    @abstractmethod
    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""

    @abstractmethod
    def new_tokens(
        self, prompts: Sequence[Sequence[int]], settings: GenerationSettings
    ) -> Iterator[tuple[int, int, float]]:
        """Yield each new token with the index of its text and its log-probability."""

    @overload
    def generate(self, prompt: str, settings: None = ...) -> GeneratedText: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def generate(  # pyright: ignore[reportOverlappingOverload]
        self, prompt: str, settings: GenerationSettings
    ) -> GeneratedText | list[GeneratedText]: ...
    @overload
    def generate(self, prompt: Sequence[str], settings: GenerationSettings | None = ...) -> list[GeneratedText]: ...
    def generate(
        self, prompt: str | Sequence[str], settings: GenerationSettings | None = None
    ) -> GeneratedText | list[GeneratedText]:
        """Continue a text, or each of several; "" begins a new one.

        A continuation depends only on its prompt and the settings, not on the other prompts.

        Args:
            prompt: a text, or a sequence of texts.
            settings: the settings; greedy decoding of 64 tokens by default. With `copies` above 1, the result is a list
                even for a single text, with the copies of a prompt next to each other.

        Raises:
            DataError: a prompt has a piece that the vocabulary lacks.
        """
        settings = settings or GenerationSettings()
        prompts = [prompt] if isinstance(prompt, str) else list(prompt)
        encoded = [self.encode(text) for text in prompts]
        sums, tokens = (
            np.zeros(len(prompts) * settings.copies),
            [list[int]() for _ in range(len(prompts) * settings.copies)],
        )
        for row, token, log_prob in self.new_tokens(encoded, settings):
            tokens[row].append(token)
            sums[row] += log_prob
        results: list[GeneratedText] = []
        for row, (row_tokens, total) in enumerate(zip(tokens, sums.tolist(), strict=True)):
            text, prompt_tokens = prompts[row // settings.copies], encoded[row // settings.copies]
            continuation = self.continuation(prompt_tokens, row_tokens)
            results.append(GeneratedText(text + continuation, continuation, tuple(row_tokens), total))
        return results[0] if isinstance(prompt, str) and settings.copies == 1 else results

    def stream(self, prompt: str, settings: GenerationSettings | None = None) -> Iterator[str]:
        """Yield the continuation of a text in pieces, as soon as they are certain; joined, they equal `generate`'s."""
        settings = (settings or GenerationSettings()).model_copy(update={"copies": 1})
        encoded, tokens, emitted = self.encode(prompt), list[int](), ""
        for _, token, _ in self.new_tokens([encoded], settings):
            tokens.append(token)
            text = self.continuation(encoded, tokens)
            # the bytes of a character can arrive one by one, and a space can belong to the next piece
            if not text.endswith(("�", " ")):
                yield text[len(emitted) :]
                emitted = text
        if rest := self.continuation(encoded, tokens)[len(emitted) :]:
            yield rest

    def continuation(self, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        """Return the text that tokens add to the prompt."""
        return self.decode([*prompt, *tokens])[len(self.decode(prompt)) :]

    def continued_scene(self, text: str, count: int) -> Scene:
        """Continue a text greedily, and return the scene of the prompt and its continuation.

        Args:
            text: the prompt.
            count: the maximum number of new tokens.

        Raises:
            DataError: as for `generate`.
        """
        generated = self.generate(text, GenerationSettings(max_new_tokens=count))
        assert isinstance(generated, GeneratedText)
        tokens = [*self.encode(text), *generated.tokens]
        is_full = self.longest is not None and len(self.start) + len(tokens) > self.longest
        read = tokens[:-1] if is_full or (tokens and self.ends(tokens[-1])) else tokens
        return build_scene(self.map_of_tokens(read), title=generated.text)

    def choose(self, log_probs: Tensor, uniform: Tensor | None, settings: GenerationSettings) -> Tensor:
        """Return the most probable token of each row of log-probabilities, (S, V), or one drawn by `uniform`, (S,)."""
        if self.forbidden:
            forbidden = torch.tensor([*self.forbidden], device=log_probs.device)
            log_probs = log_probs.index_fill(1, forbidden, -torch.inf)
        if uniform is None:
            return log_probs.argmax(-1)
        return draw_tokens(
            log_probs, uniform.to(log_probs.device), settings.temperature, settings.top_k, settings.top_p
        )
