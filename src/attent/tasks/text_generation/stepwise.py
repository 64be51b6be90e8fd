"""The continuation of a text step by step: each token with its alternatives."""

from collections.abc import Iterator, Mapping, Sequence

import torch

from attent.attention.maps.attention_map import AttentionMap, LabelledMap
from attent.errors import ArgumentError
from attent.tasks.text_generation.continuation import ContinuesText
from attent.tasks.translation.stepwise import TOP_K, Candidate, DecodingStep

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
        generator: ContinuesText,
        text: str,
        prefix: Sequence[int] = (),
        *,
        top_k: int = TOP_K,
        max_new_tokens: int = MAX_NEW_TOKENS,
    ) -> None:
        self.generator, self.prefix, self.top_k = generator, tuple(prefix), top_k
        self.prompt = generator.encode(text)
        self.tokens: list[int] = []
        start, context = len(generator.start), generator.context
        limits = [max_new_tokens] if context is None else [max_new_tokens, context - start + 1 - len(self.prompt)]
        self.limit = max(min(limits), len(self.prefix))
        read = start + len(self.prompt) + len(self.prefix)
        if context is not None and read > context:
            raise ArgumentError(
                f"the text has {read - start:,} tokens, more than the {context - start:,} that this model can read"
            )
        generator.check_prefix(self.prefix)
        self._reader = generator.reader()

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of the prompt and what comes before it, such as BOS."""
        return self.generator.labels([*self.generator.start, *self.prompt])

    @property
    def continuation(self) -> str:
        """Return the text of the tokens generated so far."""
        return self.generator.continuation(self.prompt, self.tokens)

    def __iter__(self) -> Iterator[DecodingStep]:
        self.tokens, self._reader = [], self.generator.reader()
        logits = self._reader([*self.generator.start, *self.prompt])
        while len(self.tokens) < self.limit:
            step = self._build_step(logits.softmax(-1))
            token = step.chosen.token
            if not self.generator.ends(token):
                self.tokens.append(token)
                if len(self._readable_tokens()) == len(self.prompt) + len(self.tokens):
                    logits = self._reader([token])
            yield step
            if self.generator.ends(token):
                return

    def last_maps(self) -> Mapping[str, AttentionMap | LabelledMap]:
        """Return maps whose last row is that of the last token generated, which is read in their last row."""
        return self._reader.maps() or self.map()

    def map(self, *, gradients: bool = False) -> dict[str, LabelledMap]:
        """Return every attention map of the prompt and the tokens generated so far, by the name of its module.

        See `TextGenerator.map`.
        """
        return self.generator.map_of_tokens(self._readable_tokens(), gradients=gradients)

    def _readable_tokens(self) -> list[int]:
        """Return the prompt and the tokens generated, without the last one if it is beyond the model's positions."""
        longest = self.generator.longest
        return [*self.prompt, *self.tokens][: None if longest is None else longest - len(self.generator.start)]

    def _build_step(self, probs: torch.Tensor) -> DecodingStep:
        is_forced = len(self.tokens) < len(self.prefix)
        forbidden = torch.tensor([*self.generator.forbidden], dtype=torch.int64, device=probs.device)
        probs = probs.index_fill(0, forbidden, 0.0)
        values, tokens = (part.tolist() for part in probs.topk(min(self.top_k, len(probs) - len(forbidden))))
        candidates = tuple(map(self._candidate, tokens, values))
        chosen = self.prefix[len(self.tokens)] if is_forced else tokens[0]
        return DecodingStep(self._candidate(chosen, float(probs[chosen])), candidates, is_forced)

    def _candidate(self, token: int, probability: float) -> Candidate:
        return Candidate(token, self.generator.labels([token])[0], probability)
