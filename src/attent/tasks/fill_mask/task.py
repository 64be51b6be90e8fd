"""Masked language modeling: words of plain text are masked and predicted."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attent.alignment.ablation import ACCURACY, LOSS, PERPLEXITY, HeadJudge, Metric
from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, RunError
from attent.models.encoder import EncoderModel
from attent.ops.linear_cross_entropy import linear_cross_entropy
from attent.runs.config import RunConfig
from attent.tasks.evaluation import Evaluation, Results, Say, readable_examples
from attent.tasks.fill_mask.examples import MaskedBatch, MaskedLines
from attent.tasks.fill_mask.fill_mask import FillMask, load
from attent.tasks.suggestions import MASKED_EPOCHS, Tables, count_lines, suggest
from attent.tasks.task import Evaluator, Task, TaskRun, TaskSettings, Vocabularies
from attent.text.batches import BatchSize, Sequences
from attent.text.corpus import TextCorpus, encode_lines, line_corpus, open_lines
from attent.text.readers import OVER_LONG, read_lines
from attent.text.settings import LinesSettings, limit_length
from attent.text.tokenizer import SPECIALS, Tokenizer
from attent.text.tokenizers import learn
from attent.training.autotune import Precision, autocast

# The number of masks in a batch.
BATCH = 256


@dataclass(frozen=True)
class MaskedLMReport:
    """The evaluation of a model on masked words.

    Args:
        lines: the number of lines.
        blanks: the number of masks.
        unknown: the number of words left out because the vocabulary lacks them.
        long: the number of lines left out because the model cannot read them.
        accuracy: the share of masks whose most probable word is correct, in percent.
        perplexity: e to the power of the mean cross entropy of the correct words.
    """

    lines: int
    blanks: int
    unknown: int
    long: int
    accuracy: float
    perplexity: float


def evaluate_masked_lm(filler: FillMask, lines: Sequence[str]) -> MaskedLMReport | None:
    """Mask every known word of some lines, one at a time, and predict it from the rest of its line.

    Args:
        filler: the model.
        lines: text that the model was not trained on.

    Returns:
        The report; None if there is no word to predict.
    """
    encoded = [filler.tokenizer.encode(line) for line in lines]
    longest = filler.longest or math.inf
    readable = [line for line in encoded if 0 < len(line) <= longest]
    blanks = sum(len(known_words(line)) for line in readable)
    if not blanks:
        return None
    correct = nats = 0.0
    for batch in _batches(filler, readable):
        is_correct, losses = _judged(batch.logits, batch.labels)
        correct, nats = correct + int(is_correct.sum()), nats + float(losses.sum())
    unknown, long = sum(map(len, readable)) - blanks, sum(len(line) > longest for line in encoded)
    return MaskedLMReport(len(readable), blanks, unknown, long, 100 * correct / blanks, math.exp(nats / blanks))


def known_words(tokens: Sequence[int]) -> list[int]:
    """Return the indices of the tokens of a line that are words of the vocabulary."""
    return [index for index, token in enumerate(tokens) if token >= SPECIALS]


class _Batch(NamedTuple):
    """Some masks and the model's logits for them.

    Args:
        rows: the index of each mask's line.
        masks: each mask's line, and its index in the line.
        labels: the correct words, (N,).
        logits: the logits of every word for each mask, (N, V).
    """

    rows: list[int]
    masks: list[tuple[list[int], int]]
    labels: np.ndarray
    logits: np.ndarray


def _batches(filler: FillMask, lines: Sequence[list[int]]) -> Iterator[_Batch]:
    """Mask every known word of the lines, one at a time, in order of length."""
    masked = [
        (row, index)
        for row in sorted(range(len(lines)), key=lambda row: len(lines[row]))
        for index in known_words(lines[row])
    ]
    for begin in range(0, len(masked), BATCH):
        rows = [row for row, _ in masked[begin : begin + BATCH]]
        masks = [(lines[row], index) for row, index in masked[begin : begin + BATCH]]
        inputs = [_with_mask(filler, line, index) for line, index in masks]
        with torch.inference_mode():
            logits = filler.logits(inputs, range(len(masks)), [index for _, index in masks]).double().cpu().numpy()
        yield _Batch(rows, masks, np.array([line[index] - SPECIALS for line, index in masks]), logits)


def _with_mask(filler: FillMask, line: list[int], index: int) -> list[int]:
    return [*line[:index], filler.tokenizer.size, *line[index + 1 :]]


def _judged(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return whether the largest logit, of (N, V), is the label's, (N,), and the label's loss in nats, (N,)."""
    maxima = logits.max(-1, keepdims=True)
    log_sums = np.log(np.exp(logits - maxima).sum(-1)) + maxima[:, 0]
    return logits.argmax(-1) == labels, log_sums - logits[np.arange(len(labels)), labels]


def masked_lm_lines(report: MaskedLMReport) -> list[str]:
    """Format the report as lines of text for the user."""
    left_out = [(report.unknown, "words that the model does not know"), (report.long, "lines that it cannot read")]
    return [
        f"top-1 {report.accuracy:.2f} %  perplexity {report.perplexity:.2f}",
        "; ".join(
            (
                f"{report.blanks:,} blanks, one at a time, in {report.lines:,} lines",
                *(f"{number:,} {kind} left out" for number, kind in left_out if number),
            )
        ),
    ]


class BlankJudge(HeadJudge):
    """Evaluates a masked language model by its predictions of every known word of lines, masked one at a time.

    Args:
        fill_mask: the model to evaluate.
        lines: lines of text, each with a known word, that the model can read.
        metric: ACCURACY, PERPLEXITY or LOSS.
    """

    def __init__(self, fill_mask: FillMask, lines: Sequence[str], metric: Metric = ACCURACY) -> None:
        super().__init__(fill_mask.model, metric)
        self.fill_mask = fill_mask
        self._tokens = [fill_mask.tokenizer.encode(line) for line in lines]

    def __len__(self) -> int:
        return len(self._tokens)

    def statistics(self) -> np.ndarray:
        sums = np.zeros((len(self), 2))
        for batch in _batches(self.fill_mask, self._tokens):
            judged = _judged(batch.logits, batch.labels)[0 if self.metric is ACCURACY else 1]
            np.add.at(sums, batch.rows, np.stack((judged, np.ones(len(judged))), 1))
        return sums

    @torch.no_grad()
    def maps(self, example: int) -> Mapping[str, AttentionMap]:
        """Return the attention maps of one line, with its middle known word masked."""
        tokens, indices = self._tokens[example], known_words(self._tokens[example])
        index = indices[len(indices) // 2]
        with watch(self.model) as maps:
            self.fill_mask.logits([_with_mask(self.fill_mask, tokens, index)], [0], [index])
        return dict(maps.items())


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
    """Return the mean cross entropy of masked tokens in nats, and the percentage that the model predicts correctly.

    The same tokens are masked on every call, and all of them are replaced by MASK.

    Args:
        model: the model, in evaluation mode.
        data: the lines, at least one.
        size: the batch size.
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
        """Return a report, line by line, on the text read."""
        return [line for report in self.text.reports for line in report.summary()]

    @property
    def folder(self) -> Path:
        """The folder of the encoded lines."""
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
        (tokenizer,) = vocabularies.tokenizers
        return _masked_lines(open_lines(folder), tokenizer, settings.lines)

    def evaluator(
        self, model: EncoderModel, corpus: LinesCorpus, vocabularies: Vocabularies, settings: TaskSettings
    ) -> Evaluator:
        size = BatchSize(settings.training.batch_pairs, settings.training.batch_tokens)
        return MaskedLMEvaluator(model, corpus, vocabularies, size)

    def sizes(self, config: RunConfig, tokenizers: Sequence[Tokenizer]) -> tuple[int, int]:
        # the model reads one more token, the mask
        return tokenizers[0].size + 1, tokenizers[0].size

    def evaluate(self, run: TaskRun, say: Say, *, text: str | Path | None = None) -> Evaluation:
        """Evaluate a run on a text, each word of which becomes a blank.

        Args:
            run: the run.
            say: shows a message to the user.
            text: the file.

        Raises:
            ArgumentError: the text has no word that the model knows.
            DataError: the file cannot be read.
            RunError: no text is given.
        """
        if text is None:
            raise RunError(
                f"{run.path} {self.does}, and needs a text to be evaluated on: attent evaluate {run.path} --text FILE"
            )
        lines = list(read_lines(text))
        say(f"guessing every word of {len(lines):,} lines of {text}")
        report = evaluate_masked_lm(run.tool, lines)
        if report is None:
            raise ArgumentError(f"{text} has no word that this model knows")
        return Evaluation(asdict(report), masked_lm_lines(report))

    def unknown_words(self, run: TaskRun, text: str) -> list[str]:
        return run.tool.unknown_words(text)

    def judge(self, run: TaskRun, file: str, metric: str, say: Say, *, limit: int | None = None) -> BlankJudge:
        fill_mask: FillMask = run.tool
        texts = [line for line in read_lines(file) if line.strip()][:limit]
        encoded = [fill_mask.tokenizer.encode(text) for text in texts]
        longest = fill_mask.longest or math.inf
        is_readable = [bool(known_words(tokens)) and len(tokens) <= longest for tokens in encoded]
        reasons = "have no word that this model knows, or more than it can read"
        lines = readable_examples(texts, is_readable, file, say, reasons)
        return BlankJudge(fill_mask, lines, {"accuracy": ACCURACY, "perplexity": PERPLEXITY, "loss": LOSS}[metric])


class MaskedLMEvaluator(Evaluator):
    """Evaluates a masked language model on its validation lines."""

    def __init__(self, model: EncoderModel, corpus: LinesCorpus, vocabularies: Vocabularies, size: BatchSize) -> None:
        (tokenizer,), settings = vocabularies.tokenizers, limit_length(corpus.settings, model.longest)
        encoded = drop_long_lines(corpus, tokenizer, settings.maximum_length)
        self._model, self._size = model, size
        self._lines = MaskedLines(Sequences(encoded), tokenizer.size, settings.blanks)

    def validate(self, say: Say) -> dict[str, float]:
        if not len(self._lines):
            return {}
        loss, accuracy = masked_lm_scores(self._model, self._lines, self._size)
        return {"loss": loss, "accuracy": accuracy}

    def results(self, last: Mapping[str, float]) -> Results:
        return {"validation": {"lines": len(self._lines), **last}}


def drop_long_lines(corpus: LinesCorpus, tokenizer: Tokenizer, maximum_length: int | None) -> list[list[int]]:
    """Encode the validation lines; those with more tokens than the maximum are left out and reported."""
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
