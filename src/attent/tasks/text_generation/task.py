"""Text generation: each token of plain text is predicted from those before it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from attent.models.language_model import LanguageModel
from attent.ops.linear_cross_entropy import linear_cross_entropy
from attent.search.settings import GenerationSettings
from attent.tasks.fill_mask.task import LinesCorpus, drop_long_lines
from attent.tasks.settings import RunSettings
from attent.tasks.task import Evaluator, Results, Say, Task, Vocabularies
from attent.tasks.text_generation.examples import LanguageModelBatch, LanguageModelExamples, RunningText, TextLines
from attent.tasks.text_generation.text_generator import TextGenerator
from attent.text.batches import BatchSize, Sequences
from attent.text.corpus import encode_lines, line_corpus, open_lines
from attent.text.settings import LinesSettings
from attent.text.tokenizer import PAD
from attent.text.tokenizers import learn
from attent.training.autotune import Precision, autocast

# Tokens of the text that a validation shows, and its share of the most probable tokens.
SAMPLE_TOKENS, SAMPLE_TOP_P = 24, 0.9


def language_model_cross_entropy(
    model: LanguageModel, batch: LanguageModelBatch, label_smoothing: float, precision: Precision
) -> Tensor:
    """Return the mean cross entropy of a batch's tokens, each predicted from those before it, in nats.

    PAD does not count. −1/N Σ_t log p(x_t | x_1 … x_{t−1})
    """
    with autocast(batch.inputs.device, precision):
        labels, layer = batch.labels.flatten(), model.to_logits
        token_index = torch.nonzero_static(labels != PAD, size=batch.tokens)[:, 0]
        features = model(batch.inputs).flatten(0, 1)[token_index]
        return linear_cross_entropy(features, layer.weight, layer.bias, labels[token_index], label_smoothing)


@torch.no_grad()
def language_model_loss(model: LanguageModel, data: LanguageModelExamples, size: BatchSize) -> float:
    """Return the mean cross entropy of all tokens in nats per token, without smoothing and in float32.

    Args:
        model: in evaluation mode.
        data: at least one row.
        size: of the batches.
    """
    device, total, tokens = next(model.parameters()).device, 0.0, 0
    for _, batch in data.sorted_batches(size):
        total += language_model_cross_entropy(model, batch.to(device), 0.0, "float32").item() * batch.tokens
        tokens += batch.tokens
    return total / tokens


class TextGenerationTask(Task[LinesCorpus]):
    """Learns to predict each token from those before it."""

    loss = staticmethod(language_model_cross_entropy)

    def corpus(self, settings: RunSettings) -> LinesCorpus:
        assert settings.lines is not None
        return LinesCorpus(line_corpus(settings.lines), settings.lines)

    def learn_vocabularies(self, corpus: LinesCorpus) -> Vocabularies:
        tokenizer = learn(corpus.settings.tokenizer, corpus.text.train, corpus.settings.size)
        return Vocabularies({"text": corpus.settings.tokenizer}, (tokenizer,))

    def encode(self, corpus: LinesCorpus, vocabularies: Vocabularies) -> LanguageModelExamples:
        (tokenizer,), settings = vocabularies.tokenizers, corpus.settings
        limit = _length(settings, vocabularies.longest) if settings.packing == "lines" else None
        return _examples(encode_lines(corpus.text, tokenizer, limit), settings, vocabularies.longest)

    def open_shared(self, settings: RunSettings, folder: Path, vocabularies: Vocabularies) -> LanguageModelExamples:
        assert settings.lines is not None
        return _examples(open_lines(folder), settings.lines, vocabularies.longest)

    def evaluator(
        self, model: LanguageModel, corpus: LinesCorpus, vocabularies: Vocabularies, settings: RunSettings
    ) -> Evaluator:
        (tokenizer,), lines = vocabularies.tokenizers, corpus.settings
        limit = _length(lines, model.longest) if lines.packing == "lines" else None
        validation = _examples(Sequences(drop_long_lines(corpus, tokenizer, limit)), lines, model.longest)
        size = BatchSize(settings.training.batch_pairs, settings.training.batch_tokens)
        return TextGenerationEvaluator(
            TextGenerator(model, tokenizer, stops_at_line_end=lines.packing == "lines"), validation, size
        )


class TextGenerationEvaluator(Evaluator):
    """Evaluates a language model on its validation text."""

    def __init__(self, generator: TextGenerator, validation: LanguageModelExamples, size: BatchSize) -> None:
        self._generator, self._validation, self._size = generator, validation, size

    def validate(self, say: Say) -> dict[str, float]:
        if not len(self._validation):
            return {}
        sample = GenerationSettings(max_new_tokens=SAMPLE_TOKENS, sample=True, top_p=SAMPLE_TOP_P)
        say(f"  {' '.join(self._generator.generate([''], sample)[0].text.split())}")
        return {"loss": language_model_loss(self._generator.model, self._validation, self._size)}

    def results(self, last: Mapping[str, float]) -> Results:
        return {"validation": {f"{self._validation.row_name}s": len(self._validation), **last}}


def _length(settings: LinesSettings, longest: int | None) -> int:
    """Return the most tokens of a line or window that the model can read.

    BOS takes a position, and EOS is only written.
    """
    return settings.maximum_length if longest is None else min(settings.maximum_length, longest - 1)


def _examples(lines: Sequences, settings: LinesSettings, longest: int | None) -> LanguageModelExamples:
    return TextLines(lines) if settings.packing == "lines" else RunningText(lines, _length(settings, longest))
