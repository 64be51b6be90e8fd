"""The continuation of a text step by step: each token with its alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from attent.attention.maps.attention_map import LabelledMap
from attent.errors import ArgumentError
from attent.tasks.text_generation.text_generator import FORBIDDEN, TextGenerator
from attent.tasks.translation.stepwise import TOP_K, Candidate, DecodingStep
from attent.text.batches import ROW_MULTIPLE
from attent.text.tokenizer import BOS, EOS, PAD, UNK

MAX_NEW_TOKENS = 64


class StepwiseGeneration:
    """Greedy continuation of one text, step by step.

    It generates the same tokens as `TextGenerator.generate`, within the model's context.

    Example:
        >>> generation = StepwiseGeneration(generator, "A dog")
        >>> for step in generation:
        ...     print(step.chosen.piece, step.chosen.probability)
        >>> generation.map()["decoder.layers.1.self_attention"].weights

    Args:
        generator: the generator whose model is used.
        text: the prompt; "" begins a new text.
        prefix: the tokens that the continuation begins with.
        top_k: the number of candidates per step.
        max_new_tokens: the maximum number of tokens after the prompt.

    Raises:
        ArgumentError: prompt and prefix fill the model's context, or the prefix has an id outside the vocabulary.
        DataError: the text has a piece that the vocabulary lacks.
    """

    def __init__(
        self,
        generator: TextGenerator,
        text: str,
        prefix: Sequence[int] = (),
        *,
        top_k: int = TOP_K,
        max_new_tokens: int = MAX_NEW_TOKENS,
    ) -> None:
        self.generator, self.prefix, self.top_k = generator, tuple(prefix), top_k
        self.prompt = generator.encode(text)
        self.tokens: list[int] = []
        limits = (
            [max_new_tokens] if generator.context is None else [max_new_tokens, generator.context - len(self.prompt)]
        )
        self.limit = max(min(limits), len(self.prefix))
        read = 1 + len(self.prompt) + len(self.prefix)
        if generator.context is not None and read > generator.context:
            raise ArgumentError(
                f"the text has {read - 1:,} tokens, more than the {generator.context - 1:,} that this model can read"
            )
        size, forbidden = generator.tokenizer.size, (PAD, BOS, EOS) if generator.stops_at_line_end else (PAD, BOS)
        if wrong := [token for token in self.prefix if token in forbidden or not 0 <= token < size]:
            raise ArgumentError(f"a prefix must consist of word ids from {UNK} to {size - 1}, got {wrong[0]}")

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of BOS and the prompt."""
        return self.generator.labels([BOS, *self.prompt])

    @property
    def continuation(self) -> str:
        """Return the text of the tokens generated so far."""
        return self.generator.continuation(self.prompt, self.tokens)

    def __iter__(self) -> Iterator[DecodingStep]:
        model, device = self.generator.model, self.generator.device
        copies = 1 if model.batch_invariant else ROW_MULTIPLE
        self.tokens = []
        with torch.inference_mode():
            state = model.start(copies)
            for token in [BOS, *self.prompt][:-1]:
                _, state = model.step(state, torch.full((copies,), token, device=device))
        token = self.prompt[-1] if self.prompt else BOS
        while len(self.tokens) < self.limit:
            with torch.inference_mode():
                features, state = model.step(state, torch.full((copies,), token, device=device))
                probs = model.output(features)[0].float().softmax(-1)
                step = self._build_step(probs)
            token = step.chosen.token
            if token == EOS and self.generator.stops_at_line_end:
                yield step
                return
            self.tokens.append(token)
            yield step

    def map(self, *, gradients: bool = False) -> dict[str, LabelledMap]:
        """Return every attention map of the prompt and the tokens generated so far, by the name of its module.

        See `TextGenerator.map`.
        """
        return self.generator.map_of_tokens([*self.prompt, *self.tokens], gradients=gradients)

    def _build_step(self, probs: torch.Tensor) -> DecodingStep:
        is_forced = len(self.tokens) < len(self.prefix)
        probs = probs.index_fill(0, torch.tensor(FORBIDDEN, device=probs.device), 0.0)
        values, tokens = (part.tolist() for part in probs.topk(min(self.top_k, len(probs) - len(FORBIDDEN))))
        candidates = tuple(map(self._candidate, tokens, values))
        chosen = self.prefix[len(self.tokens)] if is_forced else tokens[0]
        return DecodingStep(self._candidate(chosen, float(probs[chosen])), candidates, is_forced)

    def _candidate(self, token: int, probability: float) -> Candidate:
        return Candidate(token, self.generator.labels([token])[0], probability)
