"""Text generation: each token of plain text is predicted from those before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from attent.alignment.ablation import LOSS, PERPLEXITY
from attent.errors import ArgumentError, DataError
from attent.models.language_model import LanguageModel
from attent.ops.linear_cross_entropy import linear_cross_entropy
from attent.search.score import PairScore
from attent.search.settings import GenerationSettings
from attent.tasks.evaluation import Evaluation, Results, Say, count_trigrams, readable_examples
from attent.tasks.fill_mask.task import LinesCorpus, drop_long_lines
from attent.tasks.suggestions import Tables, count_lines, suggest_text
from attent.tasks.task import Evaluator, Task, TaskRun, TaskSettings, Vocabularies
from attent.tasks.text_generation.evaluation import NextTokenJudge, evaluate_language_model, language_model_lines
from attent.tasks.text_generation.examples import LanguageModelBatch, LanguageModelExamples, RunningText, TextLines
from attent.tasks.text_generation.text_generator import TextGenerator, load
from attent.text.batches import BatchSize, Sequences
from attent.text.corpus import encode_lines, line_corpus, open_lines
from attent.text.readers import read_lines
from attent.text.settings import LinesSettings
from attent.text.tokenizer import EOS, PAD
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

    name = "text-generation"
    aliases = ("language-model",)
    does = "generates text"
    goal = "continue a text"
    command = "attent generate {run} TEXT"
    model_kinds = ("decoder",)
    tables: ClassVar = {"lines": LinesSettings}
    # words would lack all that is rare
    table_defaults: ClassVar = {"lines": {"tokenizer": "bpe"}}
    loss = staticmethod(language_model_cross_entropy)
    load = staticmethod(load)
    metrics = ("perplexity", "loss")
    other_data = "--text FILE judges it on another text"

    def model_settings(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        return {"kind": "decoder"}

    def suggest(self, files: Mapping[str, str], minutes: float | None = None) -> tuple[Tables, int]:
        lines, characters = count_lines(files)
        return suggest_text(lines, characters, minutes), lines

    def corpus(self, settings: TaskSettings) -> LinesCorpus:
        assert settings.lines is not None
        return LinesCorpus(line_corpus(settings.lines), settings.lines)

    def learn_vocabularies(self, corpus: LinesCorpus) -> Vocabularies:
        tokenizer = learn(corpus.settings.tokenizer, corpus.text.train, corpus.settings.size)
        return Vocabularies({"text": corpus.settings.tokenizer}, (tokenizer,))

    def encode(self, corpus: LinesCorpus, vocabularies: Vocabularies) -> LanguageModelExamples:
        (tokenizer,), settings = vocabularies.tokenizers, corpus.settings
        limit = _length(settings, vocabularies.longest) if settings.packing == "lines" else None
        return _examples(encode_lines(corpus.text, tokenizer, limit), settings, vocabularies.longest)

    def open_shared(self, settings: TaskSettings, folder: Path, vocabularies: Vocabularies) -> LanguageModelExamples:
        assert settings.lines is not None
        return _examples(open_lines(folder), settings.lines, vocabularies.longest)

    def evaluator(
        self, model: LanguageModel, corpus: LinesCorpus, vocabularies: Vocabularies, settings: TaskSettings
    ) -> Evaluator:
        (tokenizer,), lines = vocabularies.tokenizers, corpus.settings
        limit = _length(lines, model.longest) if lines.packing == "lines" else None
        validation = _examples(Sequences(drop_long_lines(corpus, tokenizer, limit)), lines, model.longest)
        size = BatchSize(settings.training.batch_pairs, settings.training.batch_tokens)
        return TextGenerationEvaluator(
            TextGenerator(model, tokenizer, stops_at_line_end=lines.packing == "lines"), validation, size
        )

    def evaluate(
        self, run: TaskRun, say: Say, *, text: str | Path | None = None, against: str | Path | None = None
    ) -> Evaluation:
        """Evaluate a run on every token of a text, beside n-grams of the text that it was trained on.

        Without a text, evaluate it on its validation.

        Args:
            run: the run.
            say: shows a message to the user.
            text: the file.
            against: the text to count n-grams in; the training text unless given.

        Raises:
            ArgumentError: the text has no line that the model can read.
            DataError: a file cannot be read.
        """
        if text is None:
            if against is not None:
                raise ArgumentError("--against goes with --text FILE")
            return super().evaluate(run, say)
        generator = run.tool
        lines = [line for line in read_lines(text) if line.strip()]
        trigrams = count_trigrams(run.path, against, generator.tokenizer, say)
        say(f"predicting every token of {len(lines):,} lines of {text}")
        report = evaluate_language_model(generator, lines, trigrams)
        if report is None:
            raise ArgumentError(f"{text} has no line that this model can read")
        return Evaluation(asdict(report), language_model_lines(report))

    def judge(self, run: TaskRun, file: str, metric: str, say: Say, *, limit: int | None = None) -> NextTokenJudge:
        generator: TextGenerator = run.tool
        texts = [line for line in read_lines(file) if line.strip()][:limit]
        longest = generator.model.longest if generator.stops_at_line_end else None
        is_readable = [longest is None or len(generator.tokenizer.encode(text)) < longest for text in texts]
        lines = readable_examples(texts, is_readable, file, say)
        return NextTokenJudge(generator, lines, PERPLEXITY if metric == "perplexity" else LOSS)

    def scores(self, run: TaskRun, lines: Iterable[str], name: str) -> Iterator[PairScore]:
        """Yield the score of each line, given nothing and with its end."""
        generator: TextGenerator = run.tool
        for number, line in enumerate(lines, start=1):
            try:
                tokens = [*generator.encode(line), EOS]
            except DataError as error:
                raise DataError(f"{name}, line {number}: {error}") from error
            yield PairScore(float(generator.log_probs(tokens).sum()), len(tokens))


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
