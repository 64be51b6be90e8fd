"""One translation as it grows, a token at a time, each beside what it might have been."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.data.batches import KEY_MULTIPLE, ROW_MULTIPLE, Sequences
from attent.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from attent.decoding.constraints import Constraints
from attent.decoding.labelled import LabelledMap
from attent.decoding.settings import GREEDY
from attent.decoding.translator import BOS_LABEL, EOS_LABEL, Translator
from attent.errors import ArgumentError
from attent.models.encoder_decoder import Memory

BEST = 8
UNKNOWN_LABEL, NAMELESS = "<unk>", "�"
# Beyond so many tokens a source is not repeated for the sake of the last bit.
REPEATED = 512


@dataclass(frozen=True)
class Candidate:
    """A token that may come next.

    Args:
        token: its id; EOS where the translation may end.
        piece: what it stands for.
        probability: among all tokens, given what was written before it, 0 to 1.
    """

    token: int
    piece: str
    probability: float


@dataclass(frozen=True)
class DecodingStep:
    """One token more, EOS included.

    Args:
        said: the token that was written.
        best: the likeliest that might have been, the likeliest first.
        forced: whether it is of the prefix.
    """

    chosen: Candidate
    candidates: tuple[Candidate, ...]
    is_forced: bool


class StepwiseDecoding:
    """Greedy search for the translation of one text, step by step; it writes what `translate` writes.

    Example:
        >>> growing = StepwiseDecoding(translator, "un chien noir")
        >>> for grown in growing:
        ...     print(grown.said.piece, grown.said.probability)
        >>> growing.map()["decoder.layers.1.cross_attention"].weights

    Args:
        translator: whose model writes.
        text: the source.
        prefix: tokens that the translation begins with.
        best: how many candidates are named at each step.
        asked: where the prefix is the whole translation, how many of its tokens were asked for; the others were found by a search.

    Raises:
        ArgumentError: the text is empty or fails the translator's input check, text or prefix is longer than the model can read, or the
            prefix has ids that there are not.
    """

    def __init__(
        self, translator: Translator, text: str, prefix: Sequence[int] = (), *, top_k: int = BEST, forced_length: int | None = None
    ) -> None:
        self.translator, self.best, self.prefix = translator, top_k, tuple(prefix)
        self.whole, self.asked = forced_length is not None, len(self.prefix) if forced_length is None else forced_length
        self.sources = translator.source_tokenizer.encode(text)
        self.labels = tuple(translator.source_tokenizer.pieces(text))
        self.tokens: list[int] = []
        longest, size = translator.longest_source, translator.target_tokenizer.size
        if not self.sources:
            raise ArgumentError("there is nothing to translate: the text is empty")
        if longest is not None and len(self.sources) > longest:
            raise ArgumentError(f"the text has {len(self.sources):,} tokens, more than the {longest:,} that this model can read")
        if translator.input_check and (why := translator.input_check(text)):
            raise ArgumentError(why)
        # BOS takes a place too
        if translator.model.longest is not None and len(self.prefix) >= translator.model.longest:
            most = translator.model.longest - 1
            raise ArgumentError(f"the prefix has {len(self.prefix):,} tokens, more than the {most:,} that this model can write")
        if wrong := [token for token in self.prefix if token in (PAD, BOS, EOS) or not 0 <= token < size]:
            raise ArgumentError(f"a prefix is of ids of words from {UNK} to {size - 1}, got {wrong[0]}")

    @property
    def unknown_pieces(self) -> list[str]:
        """The pieces of the text that the model does not know, each once, in order."""
        return list(dict.fromkeys(label for label, token in zip(self.labels, self.sources, strict=True) if token == UNK))

    def __iter__(self) -> Iterator[DecodingStep]:
        model, device = self.translator.model, self.translator.device
        sequences = Sequences([self.sources])
        copies = 1 if model.rowwise or len(self.sources) > REPEATED else ROW_MULTIPLE
        most = np.iinfo(np.int64).max if model.longest is None else model.longest - 1
        with torch.inference_mode():
            limits = torch.from_numpy(np.minimum(GREEDY.limits(sequences.lengths), most)).to(device)
            constraints = Constraints.of(limits, [self.prefix])
            source = torch.from_numpy(sequences.pad(np.zeros(copies, np.int64), KEY_MULTIPLE)).to(device)
            state = model.start(model.encode(source, torch.from_numpy(sequences.lengths).to(device).repeat(copies)))
            tokens = torch.full((copies,), BOS, device=device)
        self.tokens = []
        while True:
            with torch.inference_mode():
                features, state = model.step(state, tokens)
                told = model.output(features)[:1].float().log_softmax(-1)
                written = torch.tensor([self.tokens], dtype=torch.long, device=device)
                ends = self.whole and len(self.tokens) == len(self.prefix)
                said = EOS if ends else int(constraints.apply(told, written)[0].argmax())
                tokens = torch.full_like(tokens, said)
            grown = self._grown(told[0].exp(), said)
            if said != EOS:
                self.tokens.append(said)
            yield grown
            if said == EOS:
                return

    @torch.no_grad()
    def encoder_maps(self) -> dict[str, LabelledMap]:
        """The maps of the encoder alone, by the name of their modules; none where it has no attention."""
        with watch(self.translator.model) as seen:
            self._encode()
        return {name: LabelledMap(weights, self.labels, self.labels) for name, weights in seen.items()}

    @torch.no_grad()
    def map(self, *, with_eos: bool = True) -> dict[str, LabelledMap]:
        """Every attention map of what is written so far, by the name of its module, in the order of computation.

        Args:
            with_eos: whether the last row is the one that writes EOS, or the one that wrote the last token.
        """
        model, device = self.translator.model, self.translator.device
        written = labels(self.translator.target_tokenizer, self.tokens)
        # without the end the last token was written and not read
        read = [BOS, *(self.tokens if with_eos else self.tokens[:-1])]
        rows = (*written, EOS_LABEL) if with_eos else written
        with watch(model) as seen:
            model.decode(self._encode(), torch.tensor([read], device=device))
        return {
            name: LabelledMap(weights, self.labels, self.labels)
            if name.startswith("encoder.")
            else LabelledMap(weights, rows, self.labels if name.endswith("cross_attention") else (BOS_LABEL, *rows[:-1]))
            for name, weights in seen.items()
        }

    def _encode(self) -> Memory:
        device = self.translator.device
        return self.translator.model.encode(torch.tensor([self.sources], device=device), torch.tensor([len(self.sources)], device=device))

    def _grown(self, chances: Tensor, said: int) -> DecodingStep:
        chances[[PAD, BOS]] = 0
        shares, which = chances.topk(min(self.best, len(chances) - 2))
        best = [self._candidate(*one) for one in zip(which.tolist(), shares.tolist(), strict=True)]
        return DecodingStep(self._candidate(said, float(chances[said])), tuple(best), len(self.tokens) < self.asked)

    def _candidate(self, token: int, probability: float) -> Candidate:
        return Candidate(token, labels(self.translator.target_tokenizer, [token])[0], probability)


def labels(tokenizer: Tokenizer, tokens: Sequence[int]) -> tuple[str, ...]:
    """What each token stands for, in a way that can be shown."""
    special = {EOS: EOS_LABEL, BOS: BOS_LABEL, UNK: UNKNOWN_LABEL}
    return tuple(special.get(token) or tokenizer.piece(token) or NAMELESS for token in tokens)
