"""Text generation: each token of plain text is predicted from those before it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from attent.alignment.ablation import LOSS, PERPLEXITY, HeadJudge, Metric
from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, DataError, reraise
from attent.models.language_model import LanguageModel
from attent.ops.linear_cross_entropy import linear_cross_entropy
from attent.search.score import PairScore
from attent.search.settings import GenerationSettings
from attent.tasks.evaluation import Evaluation, Results, Say, readable_examples
from attent.tasks.fill_mask.task import LinesCorpus, drop_long_lines
from attent.tasks.suggestions import Tables, count_lines, suggest_text
from attent.tasks.task import Evaluator, Task, TaskRun, TaskSettings, Vocabularies
from attent.tasks.text_generation.examples import LanguageModelBatch, LanguageModelExamples, RunningText, TextLines
from attent.tasks.text_generation.text_generator import TextGenerator, load
from attent.text.batches import BatchSize, Sequences
from attent.text.corpus import encode_lines, line_corpus, open_lines
from attent.text.readers import read_lines
from attent.text.settings import LinesSettings
from attent.text.tokenizer import EOS, PAD, UNK
from attent.text.tokenizers import learn
from attent.training.autotune import Precision, autocast


@dataclass(frozen=True)
class LanguageModelReport:
    """The evaluation of a model on lines of text.

    Args:
        lines: the number of lines.
        tokens: the number of tokens, the end of each line included.
        bytes: the number of bytes of the lines in UTF-8, with a line break after each.
        unknown: the number of unknown tokens among these; bits per byte do not include the cost of their content.
        long: the number of lines left out because the model cannot read them.
        nats: the mean of −log p per token.
    """

    lines: int
    tokens: int
    bytes: int
    unknown: int
    long: int
    nats: float

    @property
    def table(self) -> dict[str, float]:
        """The report for machines, with bits per token and per byte of UTF-8, and the perplexity, e to the nats."""
        bits = self.nats / math.log(2)
        return asdict(self) | {
            "bits": bits,
            "bits_per_byte": bits * self.tokens / self.bytes,
            "perplexity": math.exp(min(self.nats, 700.0)),
        }


def evaluate_language_model(generator: TextGenerator, lines: Sequence[str]) -> LanguageModelReport | None:
    """Compute the probability of every token of some lines, given those before it, and of the end of each line.

    If each line is a separate text, a token is predicted from those before it in its line; otherwise the lines are
    running text, and it is predicted from those before it in its window.

    Args:
        generator: the model.
        lines: text that the model was not trained on.

    Returns:
        The report; None if there is no line that the model can read.
    """
    encoded = [generator.tokenizer.encode(line) for line in lines]
    # a line by itself is BOS and its tokens
    longest = (
        generator.model.longest if generator.stops_at_line_end and generator.model.longest is not None else math.inf
    )
    is_readable = [bool(line) and len(line) < longest for line in encoded]
    texts = [line for line, readable in zip(lines, is_readable, strict=True) if readable]
    tokens = [[*line, EOS] for line, readable in zip(encoded, is_readable, strict=True) if readable]
    if not tokens:
        return None
    count, size = sum(map(len, tokens)), sum(len(text.encode("utf-8", "surrogatepass")) + 1 for text in texts)
    parts = tokens if generator.stops_at_line_end else [[token for line in tokens for token in line]]
    nats = -math.fsum(float(generator.log_probs(part).sum()) for part in parts)
    long = sum(len(line) >= longest for line in encoded)
    return LanguageModelReport(len(tokens), count, size, sum(line.count(UNK) for line in tokens), long, nats / count)


def language_model_lines(report: LanguageModelReport) -> list[str]:
    """Format the report as lines of text for the user."""
    score = report.table
    left_out = f"; {report.long:,} lines that it cannot read left out" if report.long else ""
    unknown = f", {report.unknown:,} of them unknown to the model" if report.unknown else ""
    return [
        f"{score['nats']:.3f} nats and {score['bits']:.3f} bits per token  {score['bits_per_byte']:.3f} bits per byte  "
        f"perplexity {score['perplexity']:.2f}",
        f"{report.tokens:,} tokens{unknown}, and {report.bytes:,} bytes, in {report.lines:,} lines{left_out}",
    ]


class NextTokenJudge(HeadJudge):
    """Evaluates a language model by its perplexity or its loss.

    Args:
        generator: the model to evaluate.
        lines: lines of text that the model can read, none of them empty.
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


# The number of tokens of the sample that a validation shows, and the top-p that it is drawn with.
SAMPLE_TOKENS, SAMPLE_TOP_P = 24, 0.9


def language_model_cross_entropy(
    model: LanguageModel, batch: LanguageModelBatch, label_smoothing: float, precision: Precision
) -> Tensor:
    """Return the mean cross entropy of a batch's tokens, each predicted from those before it, in nats.

    PAD is ignored: −1/N Σ_t log p(x_t | x_1 … x_{t−1})
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
        model: the model, in evaluation mode.
        data: the examples, at least one row.
        size: the batch size.
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
    # a vocabulary of words would lack all rare words
    table_defaults: ClassVar = {"lines": {"tokenizer": "bpe"}}
    loss = staticmethod(language_model_cross_entropy)
    load = staticmethod(load)
    metrics = ("perplexity", "loss")
    other_data = "--text FILE evaluates it on another text"

    def model_settings(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        return {"kind": "decoder"}

    def suggest(self, files: Mapping[str, str], minutes: float | None = None) -> tuple[Tables, int]:
        lines, characters = count_lines(files)
        return suggest_text(lines, characters, minutes), lines

    def corpus(self, settings: TaskSettings) -> LinesCorpus:
        return LinesCorpus(line_corpus(settings.lines), settings.lines)

    def learn_vocabularies(self, corpus: LinesCorpus) -> Vocabularies:
        tokenizer = learn(corpus.settings.tokenizer, corpus.text.train, corpus.settings.size)
        return Vocabularies({"text": corpus.settings.tokenizer}, (tokenizer,))

    def encode(self, corpus: LinesCorpus, vocabularies: Vocabularies) -> LanguageModelExamples:
        (tokenizer,), settings = vocabularies.tokenizers, corpus.settings
        limit = _length(settings, vocabularies.longest) if settings.packing == "lines" else None
        return _examples(encode_lines(corpus.text, tokenizer, limit), settings, vocabularies.longest)

    def open_shared(self, settings: TaskSettings, folder: Path, vocabularies: Vocabularies) -> LanguageModelExamples:
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

    def evaluate(self, run: TaskRun, say: Say, *, text: str | Path | None = None) -> Evaluation:
        """Evaluate a run on every token of a text; by default, on its validation text.

        Args:
            run: the run.
            say: shows a message to the user.
            text: the file.

        Raises:
            ArgumentError: the text has no line that the model can read.
            DataError: the file cannot be read.
        """
        if text is None:
            return super().evaluate(run, say)
        lines = [line for line in read_lines(text) if line.strip()]
        say(f"predicting every token of {len(lines):,} lines of {text}")
        report = evaluate_language_model(run.tool, lines)
        if report is None:
            raise ArgumentError(f"{text} has no line that this model can read")
        return Evaluation(report.table, language_model_lines(report))

    def judge(self, run: TaskRun, file: str, metric: str, say: Say, *, limit: int | None = None) -> NextTokenJudge:
        generator: TextGenerator = run.tool
        texts = [line for line in read_lines(file) if line.strip()][:limit]
        longest = generator.model.longest if generator.stops_at_line_end else None
        is_readable = [longest is None or len(generator.tokenizer.encode(text)) < longest for text in texts]
        lines = readable_examples(texts, is_readable, file, say)
        return NextTokenJudge(generator, lines, PERPLEXITY if metric == "perplexity" else LOSS)

    def scores(self, run: TaskRun, lines: Iterable[str], name: str) -> Iterator[PairScore]:
        """Yield the score of each line without context, its end included."""
        generator: TextGenerator = run.tool
        for number, line in enumerate(lines, start=1):
            with reraise(DataError, f"{name}, line {number}", DataError):
                tokens = [*generator.encode(line), EOS]
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
    """Return the maximum number of tokens of a line or window.

    BOS takes one position of the model; EOS is predicted, but not read.
    """
    return settings.maximum_length if longest is None else min(settings.maximum_length, longest - 1)


def _examples(lines: Sequences, settings: LinesSettings, longest: int | None) -> LanguageModelExamples:
    return TextLines(lines) if settings.packing == "lines" else RunningText(lines, _length(settings, longest))
