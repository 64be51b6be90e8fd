"""Step-by-step translation: each token with its alternatives."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import LabelledMap
from attent.errors import ArgumentError, refuse
from attent.search.constraints import Constraints
from attent.search.search import SourceText
from attent.search.settings import GREEDY
from attent.tasks.translation.translator import EOS_LABEL, Translator, labels
from attent.text.batches import KEY_MULTIPLE, ROW_MULTIPLE, Sequences
from attent.text.tokenizer import BOS, EOS, PAD, UNK, prompt_of

TOP_K = 8
# Longer sources are not repeated to get identical last bits, which would take 8 times as long.
MAX_REPEATED_SOURCE = 512


@dataclass(frozen=True)
class Candidate:
    """A possible next token.

    Args:
        token: its id; EOS ends the translation.
        piece: its label.
        probability: its probability given the previous tokens, among all tokens, 0 to 1.
    """

    token: int
    piece: str
    probability: float


@dataclass(frozen=True)
class DecodingStep:
    """A step of a translation.

    Args:
        chosen: the token that was written, possibly EOS.
        candidates: the most probable tokens of this step, the best first.
        is_forced: True if the token belongs to the prefix.
    """

    chosen: Candidate
    candidates: tuple[Candidate, ...]
    is_forced: bool


class StepwiseDecoding:
    """Greedy search for the translation of one text, step by step; it produces the same tokens as `translate`.

    Example:
        >>> decoding = StepwiseDecoding(translator, "un chien noir")
        >>> for step in decoding:
        ...     print(step.chosen.piece, step.chosen.probability)
        >>> decoding.map()["decoder.layers.1.cross_attention"].weights

    Args:
        translator: the translator whose model is used.
        text: the source, a string or a result of `translator.read`.
        prefix: tokens that the translation begins with.
        top_k: number of candidates of each step.
        forced_length: number of tokens that were forced in a beam search, if the prefix is the complete translation
            that it found; decoding then ends with the prefix.

    Raises:
        ArgumentError: the text is empty or fails the translator's input check, text or prefix is longer than the model
            can read, or the prefix has an id outside the vocabulary.
    """

    def __init__(
        self,
        translator: Translator,
        text: str | SourceText,
        prefix: Sequence[int] = (),
        *,
        top_k: int = TOP_K,
        forced_length: int | None = None,
    ) -> None:
        prompt, prefix = prompt_of(translator.target_tokenizer), tuple(prefix)
        self.translator, self.top_k = translator, top_k
        self.prefix = prefix if prefix[: len(prompt)] == prompt else (*prompt, *prefix)
        self.is_complete, self.forced_length = (
            forced_length is not None,
            len(self.prefix) if forced_length is None else forced_length,
        )
        self.source = source = translator.read(text)
        self.labels = tuple(translator.source_tokenizer.pieces(source.text, source.ids))
        self.tokens: list[int] = []
        size = translator.target_tokenizer.size
        refuse(
            (not source.ids, "there is nothing to translate: the text is empty"),
            (source.refusal, source.refusal or ""),
        )
        # BOS takes a position too
        if translator.longest is not None and len(self.prefix) >= translator.longest:
            limit = translator.longest - 1
            raise ArgumentError(
                f"the prefix has {len(self.prefix):,} tokens, more than the {limit:,} that this model can write"
            )
        if wrong := [token for token in self.prefix if token in (PAD, BOS, EOS) or not 0 <= token < size]:
            raise ArgumentError(f"a prefix is of ids of words from {UNK} to {size - 1}, got {wrong[0]}")

    @property
    def unknown_pieces(self) -> list[str]:
        """Return the distinct pieces of the text that the vocabulary lacks, in order."""
        return list(
            dict.fromkeys(label for label, token in zip(self.labels, self.source.ids, strict=True) if token == UNK)
        )

    def __iter__(self) -> Iterator[DecodingStep]:
        model, device = self.translator.model, self.translator.device
        sequences = Sequences([self.source.ids])
        copies = 1 if model.batch_invariant or len(self.source.ids) > MAX_REPEATED_SOURCE else ROW_MULTIPLE
        with torch.inference_mode():
            limits = torch.from_numpy(GREEDY.limits(sequences.lengths, model.longest)).to(device)
            constraints = Constraints.of(limits, [self.prefix])
            source = torch.from_numpy(sequences.pad(np.zeros(copies, np.int64), KEY_MULTIPLE)).to(device)
            state = model.start(model.encode(source, torch.from_numpy(sequences.lengths).to(device).repeat(copies)))
        self.tokens = []
        token = BOS
        while True:
            with torch.inference_mode():
                features, state = model.step(state, torch.full((copies,), token, device=device))
                log_probs = model.output(features)[:1].float().log_softmax(-1)
                written = torch.tensor([self.tokens], dtype=torch.long, device=device)
                at_end = self.is_complete and len(self.tokens) == len(self.prefix)
                token = EOS if at_end else int(constraints.apply(log_probs, written)[0].argmax())
            step = self._build_step(log_probs[0].exp(), token)
            if token != EOS:
                self.tokens.append(token)
            yield step
            if token == EOS:
                return

    @torch.no_grad()
    def encoder_maps(self) -> dict[str, LabelledMap]:
        """Return the encoder's attention maps by module name; empty if it has no attention."""
        with watch(self.translator.model) as maps:
            self.translator.encode(self.source.ids)
        return {name: LabelledMap(weights, self.labels, self.labels) for name, weights in maps.items()}

    def map(self, *, with_eos: bool = True, gradients: bool = False) -> dict[str, LabelledMap]:
        """Return every attention map of the tokens written so far, by module name, in the order of computation.

        Args:
            with_eos: True if the last row is the step that writes EOS, False if it is the step that wrote the last
                token.
            gradients: see `Translator.map`.
        """
        rows = labels(self.translator.target_tokenizer, self.tokens) + (EOS_LABEL,) * with_eos
        return self.translator.map_of_tokens(
            self.source.ids, [*self.tokens, *[EOS] * with_eos], self.labels, rows, gradients
        )

    def _build_step(self, probs: Tensor, chosen_token: int) -> DecodingStep:
        probs[[PAD, BOS]] = 0
        values, tokens = (part.tolist() for part in probs.topk(min(self.top_k, len(probs) - 2)))
        return DecodingStep(
            self._candidate(chosen_token, float(probs[chosen_token])),
            tuple(map(self._candidate, tokens, values)),
            len(self.tokens) < self.forced_length,
        )

    def _candidate(self, token: int, probability: float) -> Candidate:
        return Candidate(token, labels(self.translator.target_tokenizer, [token])[0], probability)
