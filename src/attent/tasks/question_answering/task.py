"""The task of answering questions about a passage with a span of it, and its evaluation."""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from attent.errors import DataError
from attent.models.encoder import EncoderModel
from attent.runs.config import RunConfig
from attent.tasks.classification.corpus import drop_unreadable, labelled_text_corpus
from attent.tasks.classification.inputs import LabelledBatch, LabelledExamples
from attent.tasks.classification.settings import LabelledSettings
from attent.tasks.classification.task import ClassificationCorpus
from attent.tasks.evaluation import Evaluation, Evaluator, Results, Say, result_lines
from attent.tasks.question_answering.question_answerer import (
    QuestionAnswerer,
    answer_log_probs,
    encode_question,
    load,
    question_examples,
    words_of,
)
from attent.tasks.task import Task, TaskRun, TaskSettings, Vocabularies
from attent.text.readers import EMPTY_LINE, LabelledText, read_lines
from attent.text.text import ReadReport
from attent.text.tokenizer import Tokenizer
from attent.text.tokenizers import learn
from attent.training.autotune import Precision, autocast

# Reasons in reports for dropping a line.
NOT_THREE, NO_ANSWER = "not passage, tab, question, tab, answer", "the answer is not in the passage, as whole words"
ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def answer_cross_entropy(
    model: EncoderModel, batch: LabelledBatch, label_smoothing: float, precision: Precision
) -> Tensor:
    """Return the mean loss of a batch's answers in nats.

        −log Σ_k p(begin = i_k) p(end = j_k)

    over the occurrences k of the answer in its passage, without label smoothing. With one occurrence, it is the loss of
    Devlin et al. (2018), §4.2, arXiv 1810.04805; with several, the summed objective of Clark and Gardner (2018), arXiv
    1710.10723.
    """
    with autocast(batch.lengths.device, precision):
        log_probs = answer_log_probs(model, batch)
    answers = batch.classes[:, 1:].unflatten(1, (-1, 2))  # (B, K, 2)
    return -log_probs.gather(1, answers).sum(-1).logsumexp(-1).mean()


def answer_scores(answers: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Return exact match and token F1, in percent, without case, punctuation and the articles a, an, the.

        F1 = 2 |shared words| / (|words of the answer| + |words of the reference|)

    averaged over answers. Source: Rajpurkar et al. (2016), §6.1, arXiv 1606.05250.
    """
    exact = f1 = 0.0
    for pair in zip(answers, references, strict=True):
        answer, reference = (ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split() for text in pair)
        shared = (Counter(answer) & Counter(reference)).total()
        exact += answer == reference
        f1 += 2 * shared / (len(answer) + len(reference)) if shared else answer == reference
    return {"exact match": 100 * exact / len(answers), "F1": 100 * f1 / len(answers)}


def occurrences(answer: str, passage: str) -> list[tuple[int, int]]:
    """Return every occurrence of an answer, as the indices of its first and last word in the passage."""
    words, parts = words_of(passage), words_of(answer)
    begins = range(len(words) - len(parts) + 1)
    return [(begin, begin + len(parts) - 1) for begin in begins if words[begin : begin + len(parts)] == parts]


def read_questions(path: str, report: ReadReport) -> list[tuple[int, LabelledText]]:
    """Read the lines of a file that have a passage, a question and an answer, with their numbers and an empty label.

    Args:
        path: the file, gzipped if its name ends in .gz; `-` is standard input.
        report: records dropped lines.

    Raises:
        DataError: the file cannot be read, or no line can be used.
    """
    lines: list[tuple[int, LabelledText]] = []
    for number, line in enumerate(read_lines(path), start=1):
        report.lines, fields = number, line.split("\t")
        if len(fields) != 3 or not all(map(words_of, fields)):
            report.drop(NOT_THREE if line.strip() else EMPTY_LINE, number)
        elif not occurrences(fields[2], fields[0]):
            report.drop(NO_ANSWER, number)
        else:
            lines.append((number, LabelledText(line, "")))
    if not lines:
        raise DataError(f"no line has a passage, a question and an answer; {report.one_line()}")
    return lines


class QuestionAnsweringTask(Task[ClassificationCorpus]):
    """Learns to mark the answer to a question in a passage."""

    name = "answer"
    aliases = ("question-answering",)
    does = "answers questions"
    goal = "answer questions about a passage"
    command = "attent answer {run} PASSAGE QUESTION"
    # after the task classify, which reads the same table
    needs_tokenizers = False
    model_kinds = ("encoder",)
    tables: ClassVar = {"labelled": LabelledSettings}
    other_data = "evaluate it on other data with --labelled"
    loss = staticmethod(answer_cross_entropy)
    load = staticmethod(load)

    def model_settings(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        return {"kind": "encoder", "input": "tokens", "cls": False}

    def corpus(self, settings: TaskSettings) -> ClassificationCorpus:
        data = labelled_text_corpus(settings.labelled, read_questions, minimum_labels=1)
        return ClassificationCorpus(data, None, settings.labelled)

    def learn_vocabularies(self, corpus: ClassificationCorpus) -> Vocabularies:
        assert corpus.texts is not None
        lines = [" ".join(words_of(line)) for line in _lines(corpus, corpus.data.train)]
        tokenizer = learn(corpus.texts.tokenizer, lines, corpus.texts.size)
        return Vocabularies({"text": corpus.texts.tokenizer}, (tokenizer,), sizes=(tokenizer.size, 2))

    def encode(self, corpus: ClassificationCorpus, vocabularies: Vocabularies) -> LabelledExamples:
        assert corpus.texts is not None
        questions: list[list[int]] = []
        positions: list[list[int]] = []
        for passage, question, answer in (line.split("\t") for line in _lines(corpus)):
            tokens, starts = encode_question(passage, question, vocabularies.tokenizers[0])
            spans = [(starts[first], starts[last + 1] - 1) for first, last in occurrences(answer, passage)]
            questions.append(tokens)
            positions.append([starts[0], *chain(*spans)])
        examples, limit = question_examples(questions, positions), corpus.texts.maximum_length
        corpus.data = drop_unreadable(corpus.data, examples.lengths(), min(limit, vocabularies.longest or limit))
        return LabelledExamples(examples.rows, examples.all_classes, corpus.data.train)

    def evaluator(
        self, model: EncoderModel, corpus: ClassificationCorpus, vocabularies: Vocabularies, settings: TaskSettings
    ) -> Evaluator:
        # leaves out what is too long
        self.encode(corpus, vocabularies)
        parts = {"validation": corpus.data.validation, "test": corpus.data.test}
        answerer = QuestionAnswerer(model, vocabularies.tokenizers[0], settings.labelled.maximum_length)
        return AnswerEvaluator(answerer, {part: _lines(corpus, rows) for part, rows in parts.items()})

    def sizes(self, config: RunConfig, tokenizers: Sequence[Tokenizer]) -> tuple[int, int]:
        return tokenizers[0].size, 2

    def evaluate(self, run: TaskRun, say: Say, *, labelled: str | Path | None = None) -> Evaluation:
        """Evaluate a run on the held-out parts of its corpus, or on a file.

        Args:
            run: the run.
            say: shows a message to the user.
            labelled: the file, with a passage, a question and its answer in each line.

        Raises:
            DataError: the file cannot be read, or has a passage that is longer than the run can read.
        """
        if labelled is None:
            return super().evaluate(run, say)
        report = ReadReport(str(labelled))
        lines = [example.text for _, example in read_questions(str(labelled), report)]
        say("\n".join(report.summary()))
        results = AnswerEvaluator(run.tool, {str(labelled): lines}).results({})
        return Evaluation(results, result_lines(results))

    def unknown_words(self, run: TaskRun, text: str) -> list[str]:
        return super().unknown_words(run, " ".join(words_of(text)))


def _lines(corpus: ClassificationCorpus, rows: np.ndarray | None = None) -> list[str]:
    """Return some lines of a corpus, or all."""
    assert isinstance(corpus.data.data, tuple)
    return [corpus.data.data[row] for row in (range(len(corpus.data.data)) if rows is None else rows)]


class AnswerEvaluator(Evaluator):
    """Evaluates a model by exact match and F1 on parts of a corpus, given as lines."""

    def __init__(self, answerer: QuestionAnswerer, parts: Mapping[str, Sequence[str]]) -> None:
        self._answerer, self._parts = answerer, {part: lines for part, lines in parts.items() if lines}

    def validate(self, say: Say) -> dict[str, float]:
        return self._scores("validation") if "validation" in self._parts else {}

    def results(self, last: Mapping[str, float]) -> Results:
        return {
            part: {"examples": len(lines), **(last if part == "validation" else self._scores(part))}
            for part, lines in self._parts.items()
        }

    def _scores(self, part: str) -> dict[str, float]:
        lines = [line.split("\t") for line in self._parts[part]]
        answers = self._answerer.answers([(passage, question) for passage, question, _ in lines])
        return answer_scores([answer.text for answer in answers], [line[2] for line in lines])
