"""Masked language modelling: words of plain text are masked and predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from attent.alignment.ablation import ACCURACY, LOSS, PERPLEXITY
from attent.errors import ArgumentError, RunError
from attent.models.encoder import EncoderModel
from attent.ops.linear_cross_entropy import linear_cross_entropy
from attent.runs.config import RunConfig
from attent.tasks.evaluation import Evaluation, Results, Say, count_trigrams, readable_examples
from attent.tasks.fill_mask.evaluation import BlankJudge, evaluate_masked_lm, known_words, masked_lm_lines
from attent.tasks.fill_mask.examples import MaskedBatch, MaskedLines
from attent.tasks.fill_mask.fill_mask import FillMask, load
from attent.tasks.suggestions import MASKED_EPOCHS, Tables, count_lines, suggest
from attent.tasks.task import Evaluator, Task, TaskRun, TaskSettings, Vocabularies
from attent.text.batches import BatchSize, Sequences
from attent.text.corpus import TextCorpus, encode_lines, line_corpus, open_lines
from attent.text.readers import OVER_LONG, read_lines
from attent.text.settings import LinesSettings, limit_length
from attent.text.tokenizer import Tokenizer
from attent.text.tokenizers import learn
from attent.training.autotune import Precision, autocast


def masked_lm_cross_entropy(
    model: EncoderModel, batch: MaskedBatch, label_smoothing: float, precision: Precision
) -> Tensor:
    """Return the mean cross entropy of a batch's masked tokens in nats.

        −1/N Σ_n log p(token n | the line with its masks)

    Source: Devlin et al. (2018), §3.1, arXiv 1810.04805.
    """
    with autocast(batch.token_ids.device, precision):
        features = model(batch.token_ids, batch.lengths).flatten(0, 1)[batch.positions]
        layer = model.to_logits
        return linear_cross_entropy(features, layer.weight, layer.bias, batch.labels, label_smoothing)


@torch.no_grad()
def masked_lm_scores(model: EncoderModel, data: MaskedLines, size: BatchSize) -> tuple[float, float]:
    """Return the mean cross entropy of masked tokens in nats, and the percentage of them that the model predicts.

    The same tokens are masked on every call, and all of them by MASK.

    Args:
        model: in evaluation mode.
        data: at least one line.
        size: of the batches.
    """
    device, total, correct, tokens = next(model.parameters()).device, 0.0, 0, 0
    for _, batch in data.sorted_batches(size):
        batch = batch.to(device)
        logits = model.output(model(batch.token_ids, batch.lengths).flatten(0, 1)[batch.positions])  # (N, V)
        total += float(torch.nn.functional.cross_entropy(logits, batch.labels, reduction="sum"))
        correct += int((logits.argmax(-1) == batch.labels).sum())
        tokens += batch.tokens
    return total / tokens, 100 * correct / tokens


@dataclass(frozen=True)
class LinesCorpus:
    """Lines of text; see `attent.tasks.task.TaskCorpus`."""

    text: TextCorpus[str]
    settings: LinesSettings

    @property
    def table(self) -> dict[str, Any]:
        """Return the settings for the run folder."""
        return {"lines": self.settings.model_dump(mode="json")}

    def report(self) -> list[str]:
        """Return lines about all that was read."""
        return [line for report in self.text.reports for line in report.summary()]

    def share(self, examples: Any) -> Path:
        """Return the folder of the encoded lines."""
        return self.text.folder.path


class MaskedLMTask(Task[LinesCorpus]):
    """Learns to predict masked words from the words around them."""

    name = "fill-mask"
    does = "fills blanks"
    goal = "fill blanks"
    command = "attent fill {run} TEXT"
    model_kinds = ("encoder",)
    tables: ClassVar = {"lines": LinesSettings}
    loss = staticmethod(masked_lm_cross_entropy)
    load = staticmethod(load)
    metrics = ("accuracy", "perplexity", "loss")

    def model_settings(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        return {"kind": "encoder", "input": "tokens", "cls": False}

    def check(self, settings: TaskSettings) -> None:
        if settings.lines.packing == "text":
            raise ValueError(f'lines: packing = "text" is for task = "text-generation", got {self.name!r}')

    def suggest(self, files: Mapping[str, str], minutes: float | None = None) -> tuple[Tables, int]:
        lines, _ = count_lines(files)
        return suggest(lines, minutes, epochs=MASKED_EPOCHS, label_smoothing=0.0), lines

    def corpus(self, settings: TaskSettings) -> LinesCorpus:
        assert settings.lines is not None
        return LinesCorpus(line_corpus(settings.lines), settings.lines)

    def learn_vocabularies(self, corpus: LinesCorpus) -> Vocabularies:
        tokenizer = learn(corpus.settings.tokenizer, corpus.text.train, corpus.settings.size)
        return Vocabularies(
            {"text": corpus.settings.tokenizer}, (tokenizer,), sizes=(tokenizer.size + 1, tokenizer.size)
        )

    def encode(self, corpus: LinesCorpus, vocabularies: Vocabularies) -> MaskedLines:
        (tokenizer,), settings = vocabularies.tokenizers, limit_length(corpus.settings, vocabularies.longest)
        return _masked_lines(encode_lines(corpus.text, tokenizer, settings.maximum_length), tokenizer, settings)

    def open_shared(self, settings: TaskSettings, folder: Path, vocabularies: Vocabularies) -> MaskedLines:
        assert settings.lines is not None
        (tokenizer,) = vocabularies.tokenizers
        return _masked_lines(open_lines(folder), tokenizer, settings.lines)

    def evaluator(
        self, model: EncoderModel, corpus: LinesCorpus, vocabularies: Vocabularies, settings: TaskSettings
    ) -> Evaluator:
        size = BatchSize(settings.training.batch_pairs, settings.training.batch_tokens)
        return MaskedLMEvaluator(model, corpus, vocabularies, size)

    def sizes(self, config: RunConfig, tokenizers: Sequence[Tokenizer]) -> tuple[int, int]:
        # it reads one token more, the mask
        return tokenizers[0].size + 1, tokenizers[0].size

    def required_options(self, config: RunConfig) -> str:
        return "--text FILE"

    def evaluate(
        self, run: TaskRun, say: Say, *, text: str | Path | None = None, against: str | Path | None = None
    ) -> Evaluation:
        """Evaluate a run on every word of a text as a blank, beside n-grams of the text that it was trained on.

        Args:
            run: the run.
            say: shows a message to the user.
            text: the file.
            against: the text to count n-grams in; the training text unless given.

        Raises:
            ArgumentError: the text has no word that the model knows.
            DataError: a file cannot be read.
            RunError: there is no text.
        """
        if text is None:
            raise RunError(
                f"{run.path} {self.does}, and is judged on a text: attent evaluate {run.path} "
                f"{self.required_options(run.config)}"
            )
        fill_mask: FillMask = run.tool
        lines = list(read_lines(text))
        trigrams = count_trigrams(run.path, against, fill_mask.tokenizer, say)
        say(f"guessing every word of {len(lines):,} lines of {text}")
        report = evaluate_masked_lm(fill_mask, lines, trigrams)
        if report is None:
            raise ArgumentError(f"{text} has no word that this model knows")
        table = asdict(report)
        table["ways"] = table.pop("scores")
        return Evaluation(table, masked_lm_lines(report))

    def judge(self, run: TaskRun, file: str, metric: str, say: Say, *, limit: int | None = None) -> BlankJudge:
        fill_mask: FillMask = run.tool
        texts = [line for line in read_lines(file) if line.strip()][:limit]
        encoded = [fill_mask.tokenizer.encode(text) for text in texts]
        is_readable = [
            bool(known_words(tokens)) and len(tokens) <= (fill_mask.longest or len(tokens)) for tokens in encoded
        ]
        reasons = "have no word that this model knows, or more than it can read"
        lines = readable_examples(texts, is_readable, file, say, reasons)
        return BlankJudge(fill_mask, lines, {"accuracy": ACCURACY, "perplexity": PERPLEXITY, "loss": LOSS}[metric])


class MaskedLMEvaluator(Evaluator):
    """Evaluates a masked language model on its validation lines."""

    def __init__(self, model: EncoderModel, corpus: LinesCorpus, vocabularies: Vocabularies, size: BatchSize) -> None:
        (tokenizer,), settings = vocabularies.tokenizers, limit_length(corpus.settings, model.longest)
        encoded = drop_long_lines(corpus, tokenizer, settings.maximum_length)
        self._model, self._size, self._lines = (
            model,
            size,
            MaskedLines(Sequences(encoded), tokenizer.size, settings.blanks),
        )

    def validate(self, say: Say) -> dict[str, float]:
        if not len(self._lines):
            return {}
        loss, accuracy = masked_lm_scores(self._model, self._lines, self._size)
        return {"loss": loss, "accuracy": accuracy}

    def results(self, last: Mapping[str, float]) -> Results:
        return {"validation": {"lines": len(self._lines), **last}}


def drop_long_lines(corpus: LinesCorpus, tokenizer: Tokenizer, maximum_length: int | None) -> list[list[int]]:
    """Encode the validation lines, but for those with more tokens than a maximum, which are reported."""
    encoded: list[list[int]] = []
    for row, line in enumerate(corpus.text.validation):
        tokens = tokenizer.encode(line)
        if maximum_length is None or len(tokens) <= maximum_length:
            encoded.append(tokens)
        else:
            corpus.text.reports[-1].drop(OVER_LONG, corpus.text.validation.line_number(row))
    return encoded


def _masked_lines(lines: Sequences, tokenizer: Tokenizer, settings: LinesSettings) -> MaskedLines:
    return MaskedLines(lines, tokenizer.size, settings.blanks, length_multiple=1)
