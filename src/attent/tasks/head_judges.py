"""Judges of heads for each kind of run.

The loss or BLEU of translations, the accuracy of classes and blanks, the perplexity of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from attent.alignment.ablation import HeadJudge, Metric
from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.classification.classifier import Classifier
from attent.tasks.classification.examples import LabelledExamples
from attent.tasks.fill_mask.evaluation import known_words, line_sums
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.text_generation.text_generator import TextGenerator
from attent.tasks.translation.metrics import bleu_metric
from attent.tasks.translation.translator import Translator
from attent.text.text import Pair
from attent.text.tokenizer import EOS

# e to more than this is no float
MAX_NATS = 700.0


def _ratio(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / sums[:, 1]


LOSS = Metric("loss", "nats per token", 1, _ratio)
CLASS_LOSS = Metric("loss", "nats per example", 1, _ratio)
ACCURACY = Metric("accuracy", "%", -1, lambda sums: 100 * _ratio(sums))
PERPLEXITY = Metric("perplexity", "", 1, lambda sums: np.exp(np.minimum(_ratio(sums), MAX_NATS)))


class LossJudge(HeadJudge):
    """Judges a translator by the loss of references.

    Args:
        translator: whose model is judged.
        pairs: sources, not empty, and their references, which the model can read.
    """

    def __init__(self, translator: Translator, pairs: Sequence[tuple[str, str]], metric: Metric = LOSS) -> None:
        super().__init__(translator.model, metric)
        self.translator, self.pairs = translator, [Pair(*pair) for pair in pairs]

    def __len__(self) -> int:
        return len(self.pairs)

    def statistics(self) -> np.ndarray:
        return np.array(
            [(-score.log_probability, score.tokens) for score in self.translator.score(self.pairs)]
        ).reshape(-1, 2)

    def maps(self, example: int) -> Mapping[str, AttentionMap]:
        pair = self.pairs[example]
        return {name: labelled.weights for name, labelled in self.translator.map(pair.source, pair.target).items()}


class BleuJudge(LossJudge):
    """Judges a translator by the BLEU of its own translations.

    Args:
        translator: whose model is judged.
        pairs: sources and their references.
        tokenize: sacreBLEU's tokenizer.
        settings: of the search.
    """

    def __init__(
        self,
        translator: Translator,
        pairs: Sequence[tuple[str, str]],
        tokenize: str = "13a",
        settings: SearchSettings = GREEDY,
    ) -> None:
        self._bleu: Any = bleu_metric(tokenize, lowercase=False)
        super().__init__(translator, pairs, Metric("BLEU", "BLEU", -1, self._scores))
        self._settings = settings

    def statistics(self) -> np.ndarray:
        translations = self.translator.translate([pair.source for pair in self.pairs], self._settings)
        return np.array(
            self._bleu._extract_corpus_statistics(translations, [[pair.target for pair in self.pairs]]), np.int64
        )

    def _scores(self, sums: np.ndarray) -> np.ndarray:
        return np.array([self._bleu._compute_score_from_stats(row).score for row in sums.tolist()])


class ClassJudge(HeadJudge):
    """Judges a classifier by its accuracy or its loss.

    Args:
        classifier: whose model is judged.
        examples: with their classes, all of which the model can read.
        metric: ACCURACY or CLASS_LOSS.
    """

    def __init__(self, classifier: Classifier, examples: LabelledExamples, metric: Metric = ACCURACY) -> None:
        super().__init__(classifier.model, metric)
        self.classifier, self.examples = classifier, examples

    def __len__(self) -> int:
        return len(self.examples)

    def statistics(self) -> np.ndarray:
        log_probs, classes = self.classifier.log_probs(self.examples).double().numpy(), self.examples.classes
        if self.metric is ACCURACY:
            numbers = (log_probs.argmax(1) == classes).astype(float)
        else:
            numbers = -log_probs[np.arange(len(classes)), classes]
        return np.stack((numbers, np.ones(len(classes))), 1)

    @torch.no_grad()
    def maps(self, example: int) -> Mapping[str, AttentionMap]:
        row = int(self.examples.selected[example])
        length = int(self.examples.rows.lengths[row])
        sequence = self.examples.rows.read(np.array([row]), None)[:, :length].to(self.classifier.device)
        with watch(self.model) as maps:
            self.model(sequence, torch.tensor([length], device=self.classifier.device))
        return dict(maps.items())


class NextTokenJudge(HeadJudge):
    """Judges a language model by its perplexity or its loss.

    Args:
        generator: whose model is judged.
        lines: of text, none of them empty, which the model can read.
        metric: PERPLEXITY or LOSS.
    """

    def __init__(self, generator: TextGenerator, lines: Sequence[str], metric: Metric = PERPLEXITY) -> None:
        super().__init__(generator.model, metric)
        self.generator = generator
        self._tokens = [generator.tokenizer.encode(line) for line in lines]

    def __len__(self) -> int:
        return len(self._tokens)

    def statistics(self) -> np.ndarray:
        texts = [[*tokens, EOS] for tokens in self._tokens]
        if self.generator.stops_at_line_end:
            sums = [float(self.generator.log_probs(text).sum()) for text in texts]
        else:
            # running text, which is read in windows
            log_probs = self.generator.log_probs([token for text in texts for token in text])
            sums = [math.fsum(part.tolist()) for part in log_probs.split([len(text) for text in texts])]
        return np.array([(-total, len(text)) for total, text in zip(sums, texts, strict=True)]).reshape(-1, 2)

    def maps(self, example: int) -> Mapping[str, AttentionMap]:
        longest = self.generator.model.longest
        tokens = self._tokens[example][: None if longest is None else longest - 1]
        return {name: labelled.weights for name, labelled in self.generator.map_of_tokens(tokens).items()}


class BlankJudge(HeadJudge):
    """Judges a masked language model by its guesses of every known word of lines, masked one at a time.

    Args:
        fill_mask: whose model is judged.
        lines: of text, each with a known word, which the model can read.
        metric: ACCURACY, PERPLEXITY or LOSS.
    """

    def __init__(self, fill_mask: FillMask, lines: Sequence[str], metric: Metric = ACCURACY) -> None:
        super().__init__(fill_mask.model, metric)
        self.fill_mask = fill_mask
        self._tokens = [fill_mask.tokenizer.encode(line) for line in lines]

    def __len__(self) -> int:
        return len(self._tokens)

    def statistics(self) -> np.ndarray:
        return line_sums(self.fill_mask, self._tokens)[:, [0 if self.metric is ACCURACY else 1, 2]]

    @torch.no_grad()
    def maps(self, example: int) -> Mapping[str, AttentionMap]:
        """Run the model over one line whose middle known word is masked."""
        tokens, indices = self._tokens[example], known_words(self._tokens[example])
        index = indices[len(indices) // 2]
        with watch(self.model) as maps:
            self.fill_mask.logits(
                [[*tokens[:index], self.fill_mask.tokenizer.size, *tokens[index + 1 :]]], [0], [index]
            )
        return dict(maps.items())
