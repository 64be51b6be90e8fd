"""A decoder-only language model of Hugging Face's transformers: it continues texts and shows its attention."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap, LabelledMap
from attent.errors import ArgumentError, DataError, refuse
from attent.search.settings import GenerationSettings
from attent.tasks.pretrained.model import PretrainedModel
from attent.tasks.text_generation.continuation import ContinuesText, TextReader
from attent.tasks.translation.translator import log_likelihood

# Names of the argument for keys and values of earlier tokens, by version of transformers.
CACHES = ("cache", "past_key_values")


class PretrainedGenerator(PretrainedModel, ContinuesText):
    """A language model of transformers, which continues texts.

    Args:
        model: put into evaluation mode; its class predicts the next token.
        tokenizer: the model's tokenizer.
    """

    input_kind = "texts"

    def __init__(self, model: Any, tokenizer: Any) -> None:
        super().__init__(model, "text", tokenizer)
        self.start, self.size = _tokens_before(tokenizer), len(tokenizer)
        self.context = self.longest = self._longest()
        ends = model.generation_config.eos_token_id
        self._ends = frozenset([ends] if isinstance(ends, int) else ends or ())
        parameters = inspect.signature(model.forward).parameters
        self._takes_last = "logits_to_keep" in parameters
        self._cache_name = next((name for name in CACHES if name in parameters), None)

    def __repr__(self) -> str:
        return f"PretrainedGenerator({type(self.model).__name__})"

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without those that the tokenizer adds; BOS if there would be none."""
        tokens = self.tokenizer(text, add_special_tokens=False).input_ids
        begin = self.tokenizer.bos_token_id
        return [begin] if not tokens and not self.start and begin is not None else tokens

    def labels(self, tokens: Sequence[int]) -> tuple[str, ...]:
        return (*self._labels(tokens),)

    def decode(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode([*tokens], skip_special_tokens=True)

    def ends(self, token: int) -> bool:
        return token in self._ends

    def check_prefix(self, prefix: Sequence[int]) -> None:
        if wrong := [token for token in prefix if not 0 <= token < self.size]:
            raise ArgumentError(f"a prefix must consist of token ids from 0 to {self.size - 1}, got {wrong[0]}")

    def reader(self) -> TextReader:
        return _CachedReader(self)

    @torch.no_grad()
    def map_of_tokens(self, tokens: Sequence[int], *, gradients: bool = False) -> dict[str, LabelledMap]:
        """Return the attention maps of a text that is given as tokens, without `start`.

        Row t belongs to the position that reads token t and predicts the next one.

        Args:
            tokens: the tokens.
            gradients: whether to include the weights times the gradients of the text's log-probability with respect to
                them.

        Raises:
            ArgumentError: nothing can be watched.
            DataError: the text is empty, or has more tokens than the model can read.
        """
        tokens = self._checked([*self.start, *tokens])
        labels, derived = self.labels(tokens), dict[str, AttentionMap]()
        if not gradients or len(tokens) < 2:
            maps = self._watch(input_ids=self._batch(tokens))[1]
        else:
            with torch.enable_grad(), watch(self.model, gradients=True) as maps:
                logits = self.model(input_ids=self._batch(tokens)).logits[0, :-1]
                derived = maps.last_gradients(log_likelihood(logits, tokens[1:]))
        return {name: LabelledMap(weights, labels, labels, derived.get(name)) for name, weights in maps.items()}

    @torch.no_grad()
    def new_tokens(
        self, prompts: Sequence[Sequence[int]], settings: GenerationSettings
    ) -> Iterator[tuple[int, int, float]]:
        """Yield each new token with the index of its text and its log-probability, one text after another.

        Raises:
            DataError: a prompt is empty and nothing comes before it, or it has more tokens than the model can read.
        """
        for index, prompt in enumerate(prompt for prompt in prompts for _ in range(settings.copies)):
            draws = np.random.default_rng([settings.seed, index % settings.copies, *prompt])
            reader, token = self.reader(), None
            read = self._checked([*self.start, *prompt])
            room = settings.max_new_tokens if self.context is None else self.context - len(read) + 1
            for _ in range(min(settings.max_new_tokens, room)):
                log_probs = reader(read if token is None else [token])[None].log_softmax(-1)
                uniform = torch.tensor([draws.random()], dtype=torch.float64) if settings.sample else None
                token = int(self.choose(log_probs, uniform, settings))
                yield index, token, float(log_probs[0, token])
                if self.ends(token):
                    break

    def next_logits(self, tokens: Sequence[int], cache: Any) -> tuple[Tensor, Any]:
        """Return the logits of the token that follows, (V,), and the cache of all tokens, if the model has one."""
        name = self._cache_name
        options = {} if name is None else {name: cache, "use_cache": True}
        outputs = self.model(input_ids=self._batch([*tokens]), **self._keep_last(), **options)
        return outputs.logits[0, -1].float(), None if name is None else getattr(outputs, name)

    def _watch(self, **inputs: Any) -> tuple[Any, dict[str, Any]]:
        without_cache = {} if self._cache_name is None else {"use_cache": False}
        return super()._watch(**inputs, **self._keep_last(), **without_cache)

    def _keep_last(self) -> dict[str, int]:
        """Return the option that computes only the last logits: all of them would be T × V numbers."""
        return {"logits_to_keep": 1} if self._takes_last else {}

    def _encode(self, text: str) -> list[int]:
        return self._checked([*self.start, *self.encode(text)])

    def _checked(self, tokens: list[int]) -> list[int]:
        refuse(
            (not tokens, "the text is empty, and this model's tokenizer puts no token before a text"),
            (
                self.context is not None and len(tokens) > self.context,
                f"the text has {len(tokens)} tokens, more than the {self.context} that this model can read",
            ),
            kind=DataError,
        )
        return tokens


class _CachedReader:
    """Reads a text with a model's cache, and keeps the maps of the last tokens."""

    def __init__(self, generator: PretrainedGenerator) -> None:
        self._generator, self._cache, self._tokens = generator, None, list[int]()
        self._maps: dict[str, AttentionMap] = {}

    @torch.no_grad()
    def __call__(self, tokens: Sequence[int]) -> Tensor:
        self._tokens += tokens
        read = tokens if self._cache is not None else self._tokens
        with watch(self._generator.model, own_thread=True) as maps:
            logits, self._cache = self._generator.next_logits(read, self._cache)
        self._maps = {**maps}
        return logits

    def maps(self) -> dict[str, AttentionMap] | None:
        return self._maps


def _tokens_before(tokenizer: Any) -> tuple[int, ...]:
    """Return the tokens that a tokenizer puts before every text."""
    whole, text = (tokenizer("a", add_special_tokens=special).input_ids for special in (True, False))
    begins = (begin for begin in range(len(whole)) if whole[begin : begin + len(text)] == text)
    return (*whole[: next(begins, 0)],)
