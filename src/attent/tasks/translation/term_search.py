"""Translation with a glossary: a search whose hypotheses contain its terms.

A sentence is translated first without the glossary. If the translation lacks a term, the search is repeated with a
forced beginning: the translation up to the word whose attention to the term's source is largest, then the term. The
rest is either searched for, or copied from the translation after that word, so that only the word is replaced; of these
two hypotheses, the one with the higher probability per token is used. The next missing term is placed after this one.
Every term appears, and sentences without terms, or whose translation already contains them, get exactly the translation
of a search without a glossary.

Sources: lexically constrained decoding as in Hokamp and Liu (2017), arXiv 1704.07138, and Post and Vilar (2018), arXiv
1804.06609; by attention to the term's source as in Chatterjee et al. (2017), "Guiding Neural Machine Translation
Decoding with External Knowledge". Forced beginnings take the place of their separate beams per number of terms, so the
search itself is unchanged.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attent.alignment.forced_decoding import AttentionSelector, source_attention
from attent.errors import ArgumentError, reraise
from attent.search.search import SourceText, Translation
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.translation.engine import BATCH
from attent.tasks.translation.glossary import Glossary, Term, compose, keeps_case, missing, read_glossary
from attent.tasks.translation.translator import Translator
from attent.text.batches import BatchSize
from attent.text.tokenizer import BOS, EOS, UNK, Tokenizer, marks_of, prompt_of
from attent.text.units import LETTER, is_mark, units

# Tokens of sources and targets → the attention of each target token to the source's, (Tq, Tk) each.
Attention = Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]]], Sequence[Tensor]]


@dataclass(frozen=True)
class _Sentence:
    """A sentence whose terms are being placed.

    Args:
        source: the text.
        terms: terms of the glossary in the text.
        best: the translation so far.
        fixed: number of tokens at its beginning that must not change.
        placed: number of terms placed so far.
    """

    source: SourceText
    terms: Sequence[Term]
    best: Translation
    fixed: int = 0
    placed: int = 0

    @property
    def missing(self) -> list[Term]:
        """The terms that the translation lacks; of several with the same target, the last ones."""
        absent, result = missing(self.best.text, [term.target for term in self.terms]), list[Term]()
        for term in reversed(self.terms):
            if term.target in absent:
                absent.remove(term.target)
                result.append(term)
        return result


class _Beginning(NamedTuple):
    """The forced beginning of a translation.

    Args:
        tokens: all tokens of the beginning.
        end: number of tokens up to the end of the term.
    """

    tokens: list[int]
    end: int


def check_terms(glossary: Glossary, tokenizer: Tokenizer) -> None:
    """Check that a run can write the terms of a glossary.

    Raises:
        ArgumentError: its vocabulary lacks a part of a term.
    """
    for _, target in glossary.entries:
        if UNK in _term_tokens(target, tokenizer):
            raise ArgumentError(f"the run cannot write the term {target!r}: its vocabulary lacks a part of it")


def read_terms(path: Path, tokenizer: Tokenizer) -> Glossary:
    """Read a glossary for a run.

    Args:
        path: path of the file.
        tokenizer: the run's target tokenizer.

    Raises:
        ArgumentError: the run cannot write a term.
        DataError: the file cannot be read, or a line is not a term.
    """
    glossary = read_glossary(path)
    with reraise(ArgumentError, path, ArgumentError):
        check_terms(glossary, tokenizer)
    return glossary


class TermSearch:
    """Translates text with a glossary.

    Args:
        translator: performs the searches.
        glossary: the terms.
        attention: computes the attention to the source; by default, that used for the run's word alignment, see
            `attent.alignment.forced_decoding.source_attention`.
    """

    def __init__(self, translator: Translator, glossary: Glossary, attention: Attention | None = None) -> None:
        self._translator, self._glossary = translator, glossary
        selector = AttentionSelector.of_run(translator.config)
        self._attention = attention or partial(source_attention, translator.model, selector=selector)
        self._keeps_case = keeps_case(translator.source_tokenizer)

    def __call__(
        self,
        texts: Sequence[str | SourceText],
        settings: SearchSettings = GREEDY,
        *,
        prefixes: Sequence[str] | None = None,
        batch: int | BatchSize = BATCH,
        terms: Sequence[Sequence[Term]] | None = None,
    ) -> list[list[Translation]]:
        """Return the n_best translations of each text, all of which contain its terms.

        Args:
            texts: sentences.
            settings: search settings.
            prefixes: the beginning of each translation.
            batch: batch size, in texts if an int.
            terms: terms of each text; by default, those found by the glossary.

        Raises:
            ArgumentError: the settings ask for samples.
        """
        if settings.sample:
            raise ArgumentError("a glossary cannot be combined with sampling")
        sources = [self._translator.read(text) for text in texts]
        results = self._translator.search(sources, settings, prefixes=prefixes, batch=batch)
        prompt = len(prompt_of(self._translator.target_tokenizer))
        terms = terms or [self._glossary.find(source.text, keeps_case=self._keeps_case) for source in sources]
        targets = [[term.target for term in of_text] for of_text in terms]
        sentences: dict[int, _Sentence] = {}
        for row, of_text in enumerate(terms):
            if of_text and results[row] and not sources[row].refusal:
                begin = len(_tokens(prefixes[row], self._translator.target_tokenizer)) if prefixes else 0
                sentences[row] = _Sentence(sources[row], of_text, results[row][0], prompt + begin)
        pools = {row: [item for item in results[row] if not missing(item.text, targets[row])] for row in sentences}
        waiting = {row: item for row, item in sentences.items() if item.missing}
        while waiting:
            for row, (sentence, items) in zip(
                list(waiting), self._place([*waiting.values()], settings, batch), strict=True
            ):
                pools[row] += [item for item in items if not missing(item.text, targets[row])]
                waiting[row] = sentence
                if not items or not sentence.missing or sentence.placed >= len(sentence.terms):
                    sentences[row] = waiting.pop(row)
        for row, sentence in sentences.items():
            # only a term for which no place is left may be missing
            distinct = {item.tokens: item for item in pools[row] if settings.n_best > 1} or {(): sentence.best}
            results[row] = sorted(distinct.values(), key=lambda item: -item.score)[: settings.n_best]
        return results

    def _place(
        self, sentences: Sequence[_Sentence], settings: SearchSettings, batch: int | BatchSize
    ) -> list[tuple[_Sentence, list[Translation]]]:
        """Place one term in each sentence; return the sentences with their translations, none if no place is left."""
        encoded = [sentence.source.ids for sentence in sentences]
        maps = self._attention(encoded, [sentence.best.tokens for sentence in sentences])
        limits = settings.limits(np.array([len(tokens) for tokens in encoded]), self._translator.longest).tolist()
        beginnings = [
            (row, beginning)
            for row, (sentence, weights, limit) in enumerate(zip(sentences, maps, limits, strict=True))
            for beginning in self._beginnings(sentence, weights, limit)
        ]
        result: list[tuple[_Sentence, list[Translation]]] = [(sentence, []) for sentence in sentences]
        sources = [sentences[row].source for row, _ in beginnings]
        n_best_lists = self._search(sources, [beginning for _, beginning in beginnings], settings, batch)
        for (row, beginning), items in zip(beginnings, n_best_lists, strict=True):
            before, pool = result[row]
            if items and (not pool or _per_token(items[0]) > _per_token(before.best)):
                before = replace(sentences[row], best=items[0], fixed=beginning.end, placed=sentences[row].placed + 1)
            result[row] = before, [*pool, *items]
        return result

    def _search(
        self,
        sources: Sequence[SourceText],
        beginnings: Sequence[_Beginning],
        settings: SearchSettings,
        batch: int | BatchSize,
    ) -> list[list[Translation]]:
        """Return the translations with these beginnings in which the term remains a separate word."""
        translator, decode = self._translator, self._translator.target_tokenizer.decode
        n_best_lists = translator.search(
            sources, settings, prefixes=[beginning.tokens for beginning in beginnings], batch=batch
        )
        results = [
            [item for item in items if not _is_glued(decode(beginning.tokens[: beginning.end]), item.text)]
            for items, beginning in zip(n_best_lists, beginnings, strict=True)
        ]
        rows = [row for row, items in enumerate(results) if not items]
        longer = [[*beginnings[row].tokens, self._next_word(sources[row], beginnings[row].tokens)] for row in rows]
        separated = translator.search([sources[row] for row in rows], settings, prefixes=longer, batch=batch)
        for row, items in zip(rows, separated, strict=True):
            results[row] = items
        return results

    def _beginnings(self, sentence: _Sentence, weights: Tensor, limit: int) -> list[_Beginning]:
        """Return beginnings with the missing term whose place comes first; none if there is no place.

        Args:
            sentence: a sentence that lacks a term.
            weights: the attention of its translation's tokens, (Tq, Tk).
            limit: maximum number of tokens of a translation.

        Returns:
            The beginning that ends with the term and, if within the limit, the one that continues with the rest of the
            translation after the word that the term replaces.
        """
        translation, longest = sentence.best, self._translator.longest
        cuts = [cut for cut in self._cuts(translation) if cut >= sentence.fixed]
        ranked = [(self._ranked(sentence, term, weights, cuts), term) for term in sentence.missing]
        order, term = min(ranked, key=lambda item: (item[0][:1], item[1].begin))
        for cut in order:
            tokens = self._joined(translation.tokens[:cut], term.target)
            if tokens and (longest is None or len(tokens) + 2 < longest):
                decode = self._translator.target_tokenizer.decode
                # after the word that the term replaces
                rest = translation.tokens[min((end for end in cuts if end > cut), default=cut) :]
                whole = [*tokens, *rest]
                can_stay = rest and len(whole) <= limit and not _is_glued(decode(tokens), decode(whole))
                return [_Beginning(item, len(tokens)) for item in ([tokens, whole] if can_stay else [tokens])]
        return []

    def _cuts(self, translation: Translation) -> list[int]:
        """Return the numbers of tokens, from 0 to all, after which the translation can be cut between words."""
        decode, tokens, text = self._translator.target_tokenizer.decode, translation.tokens, translation.text
        lengths = [len(decode(tokens[:count])) for count in range(len(tokens) + 1)]
        return [count for count, length in enumerate(lengths) if not _is_glued(text[:length], text)]

    def _ranked(self, sentence: _Sentence, term: Term, weights: Tensor, cuts: Sequence[int]) -> list[int]:
        """Return the cuts, sorted by the attention of the following word to the term's source, highest first."""
        tokenizer, text = self._translator.source_tokenizer, sentence.source.text
        around = len(tokenizer.encode(""))
        first, last = (len(tokenizer.encode(part)) - around for part in (text[: term.begin].rstrip(), text[: term.end]))
        lead = len(prompt_of(tokenizer))
        received = weights[:, lead + first : lead + last].sum(1)
        ends = [*cuts[1:], len(received)]
        # rounded, so that last bits that depend on the batch do not matter
        masses = {
            cut: round(float(received[cut:end].mean()), 4) if end > cut else 0.0
            for cut, end in zip(cuts, ends, strict=True)
        }
        return sorted(cuts, key=lambda cut: (-masses[cut], cut))

    def _joined(self, tokens: Sequence[int], target: str) -> list[int] | None:
        """Return tokens followed by those of a term, with a space between them if the target language has one.

        Return None if the term cannot be written there.
        """
        tokenizer = self._translator.target_tokenizer
        before = tokenizer.decode(tokens)
        for term in (target, f" {target}"):
            joined = [*tokens, *_term_tokens(term, tokenizer)]
            text = tokenizer.decode(joined)
            if (
                compose(text).endswith(compose(target))
                and text.startswith(before)
                and not missing(text[len(before) - 1 if before else 0 :], [target])
            ):
                return joined
        return None

    @torch.inference_mode()
    def _next_word(self, source: SourceText, tokens: Sequence[int]) -> int:
        """Return the most probable next token that does not continue the last word."""
        translator = self._translator
        memory = translator.encode(source.ids)
        target = torch.tensor([[BOS, *tokens]], device=translator.device)
        logits = translator.model.output(translator.model.decode(memory, target)[:, -1])[0].float()
        return int(
            logits.masked_fill(_continuations(translator.target_tokenizer).to(logits.device), -torch.inf).argmax()
        )


def _per_token(translation: Translation) -> float:
    """Return the log-probability per token, EOS included, in nats, to compare hypotheses of different lengths."""
    return translation.log_probability / (len(translation.tokens) + 1)


@lru_cache(maxsize=8)
def _continuations(tokenizer: Tokenizer) -> Tensor:
    """Return whether each token can continue a word, (V,).

    These are letters and marks without a space before them, bytes, and tokens without text.
    """
    pieces = [tokenizer.piece(token) for token in range(tokenizer.size)]
    goes_on = [not piece or re.match(LETTER, piece) is not None or is_mark(piece[0]) for piece in pieces]
    return torch.tensor([token != EOS and goes_on[token] for token in range(len(pieces))])


def _is_glued(beginning: str, text: str) -> bool:
    """Return whether the text continues the last word of a beginning."""
    return not text.startswith(beginning) or any(span.begin < len(beginning) < span.end for span in units(text))


def _term_tokens(text: str, tokenizer: Tokenizer) -> list[int]:
    """Return the tokens of a term, with composed accents if the tokenizer only knows that form."""
    tokens = _tokens(text, tokenizer)
    return _tokens(compose(text), tokenizer) if UNK in tokens else tokens


def _tokens(text: str, tokenizer: Tokenizer) -> list[int]:
    """Return the tokens of a part of a translation, without special marks and the prompt."""
    marks, prompt = marks_of(tokenizer), prompt_of(tokenizer)
    tokens = tokenizer.encode(text)
    return [
        token for token in tokens[len(prompt) if tuple(tokens[: len(prompt)]) == prompt else 0 :] if token not in marks
    ]
