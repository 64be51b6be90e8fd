"""A trained model that answers questions about a passage with a span of it."""

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import LabelledMap
from attent.errors import ArgumentError, RunError, refuse
from attent.models.encoder import EncoderModel
from attent.runs.config import DType
from attent.runs.folder import Run
from attent.tasks.classification.inputs import LabelledBatch, LabelledExamples, TextRows
from attent.tasks.classification.settings import LabelledSettings
from attent.tasks.from_run import FromRun, load_tool
from attent.text.batches import BatchSize, Sequences
from attent.text.tokenizer import EOS, UNK, Tokenizer
from attent.text.units import Span, units
from attent.views.trace import ForwardPass

# Maximum number of tokens of an answer.
MAX_ANSWER = 30
BATCH = BatchSize(pairs=64)
SEPARATOR = "[SEP]"


@dataclass(frozen=True)
class AnswerSpan:
    """An answer to a question about a passage.

    Args:
        text: the answer.
        span: its characters in the passage, counted from 0, the end excluded.
        probability: the probability of its first token times that of its last token, each among all tokens of the
            passage.
    """

    text: str
    span: Span
    probability: float


def words_of(text: str) -> list[str]:
    """Return the words and signs of a text."""
    return [text[begin:end] for begin, end in units(text)]


def encode_question(passage: str, question: str, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Encode a question, EOS and a passage; each word is encoded by itself, so that answers consist of whole words.

    Returns:
        The tokens; and the index of the first token of each word of the passage, followed by the number of tokens.
    """
    tokens = [token for word in words_of(question) for token in tokenizer.encode(word)] + [EOS]
    starts = [len(tokens)]
    for word in words_of(passage):
        tokens += tokenizer.encode(word) or [UNK]
        starts.append(len(tokens))
    return tokens, starts


def question_examples(questions: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]) -> LabelledExamples:
    """Return encoded questions as examples, whose "classes" are the positions in them that the model needs.

    Args:
        questions: the tokens of each question and its passage.
        positions: for each, the first token of the passage, and for training the first and last token of every
            occurrence of the answer; padded with zeros: (N, 1 + 2K).
    """
    return LabelledExamples(TextRows(Sequences(questions)), Sequences(positions).pad(np.arange(len(positions))))


def answer_log_probs(model: EncoderModel, batch: LabelledBatch) -> Tensor:
    """Return the log-probabilities that each token begins or ends the answer, (B, T, 2); −∞ outside of the passage.

        p(begin = i) = softmaxᵢ(s · hᵢ),  p(end = j) = softmaxⱼ(e · hⱼ)

    over the tokens of the passage. Source: Devlin et al. (2018), §4.2, arXiv 1810.04805.
    """
    batch = batch.trim_padding(model.longest)
    logits = model.output(model(batch.sequence, batch.lengths)).float()  # (B, T, 2)
    positions = torch.arange(logits.shape[1], device=logits.device)
    is_passage = (positions >= batch.classes[:, :1]) & (positions < batch.lengths[:, None])
    return logits.masked_fill(~is_passage[..., None], -torch.inf).log_softmax(1)


def best_spans(log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the most probable span of each passage: argmax_{i ≤ j < i + MAX_ANSWER} log p(begin = i) + log p(end = j).

    Args:
        log_probs: see `answer_log_probs`, (B, T, 2).

    Returns:
        The first and last token, (B, 2), and the log-probability, (B,).
    """
    ends = torch.nn.functional.pad(log_probs[..., 1], (0, MAX_ANSWER - 1), value=-torch.inf)
    scores = log_probs[..., :1] + ends.unfold(1, MAX_ANSWER, 1)  # (B, T, MAX_ANSWER)
    best, index = scores.flatten(1).max(-1)
    first = index // MAX_ANSWER
    return torch.stack((first, first + index % MAX_ANSWER), -1), best


class QuestionAnswerer(FromRun):
    """Answers questions about a passage with a span of it.

    Args:
        model: an encoder with two outputs for each token, begin and end; it is set to evaluation mode.
        tokenizer: the tokenizer of words.
        longest: the maximum number of tokens of a question and its passage.
    """

    def __init__(self, model: EncoderModel, tokenizer: Tokenizer, longest: int) -> None:
        self.model, self.tokenizer, self.longest = model.eval(), tokenizer, min(longest, model.longest or longest)
        self.device = next(model.parameters()).device

    def answer(self, passage: str, question: str) -> AnswerSpan:
        """Answer a question about a passage.

        Raises:
            ArgumentError: passage or question have no words, or together more tokens than the run can read.
        """
        return self.answers([(passage, question)])[0]

    @torch.no_grad()
    def answers(self, questions: Sequence[tuple[str, str]]) -> list[AnswerSpan]:
        """Answer several questions, each given as passage and question; raises the errors of `answer`."""
        self.model.eval()
        encoded, answers = [self._encode(*question) for question in questions], dict[int, AnswerSpan]()
        examples = question_examples([tokens for tokens, _ in encoded], [starts[:1] for _, starts in encoded])
        for rows, batch in examples.sorted_batches(BATCH):
            best, log_probs = best_spans(answer_log_probs(self.model, batch.to(self.device)))
            for row, tokens, probability in zip(rows.tolist(), best.tolist(), log_probs.exp().tolist(), strict=True):
                passage, words = questions[row][0], units(questions[row][0])
                first, last = (words[bisect(encoded[row][1], token) - 1] for token in tokens)
                answers[row] = AnswerSpan(passage[first.begin : last.end], Span(first.begin, last.end), probability)
        return [answers[row] for row in range(len(questions))]

    @torch.no_grad()
    def map(self, text: str, *, gradients: bool = False) -> dict[str, LabelledMap]:
        """Return every attention map of a passage, a tab and a question, by the name of its module.

        The first positions are the question, then a separator and the passage.

        Args:
            text: the passage, a tab and the question.
            gradients: whether to include the weights times the gradients of the answer's log-probability.

        Raises:
            ArgumentError: there is not one tab, or as for `answer`.
        """
        passage, *questions = text.split("\t")
        if len(questions) != 1:
            raise ArgumentError(f"give a passage, a tab and a question, got {len(questions)} tabs")
        tokens, starts = self._encode(passage, questions[0])
        batch = question_examples([tokens], [starts[:1]]).batch(np.zeros(1, np.int64)).trim_padding(1).to(self.device)
        with torch.set_grad_enabled(gradients), watch(self.model, gradients=gradients) as maps:
            log_probs = answer_log_probs(self.model, batch)
            derived = maps.last_gradients(best_spans(log_probs)[1].sum()) if gradients else {}
        before, after = ([*map(self.tokenizer.pieces, words_of(part))] for part in (questions[0], passage))
        pieces = tuple(piece for word in (*before, [SEPARATOR], *after) for piece in word)
        return {name: LabelledMap(weights, pieces, pieces, derived.get(name)) for name, weights in maps.items()}

    def forward_pass(self, text: str) -> ForwardPass:
        """Return the forward pass over a passage, a tab and a question; raises the errors of `map`."""
        # without outputs, which are not alternatives at a token
        return ForwardPass(text, self.model, lambda: self.map(text), "", str)

    def _encode(self, passage: str, question: str) -> tuple[list[int], list[int]]:
        tokens, starts = encode_question(passage, question, self.tokenizer)
        refuse(
            (not units(passage), "the passage has no words"),
            (not units(question), "the question has no words"),
            (
                len(tokens) > self.longest,
                f"question and passage have {len(tokens):,} tokens, more than the {self.longest:,} that this run can "
                "read: give a part of the passage",
            ),
        )
        return tokens, starts


def load(
    path: Path | str, device: torch.device | str = "cpu", *, trust_code: bool = False, dtype: DType | None = None
) -> QuestionAnswerer:
    """Load the model of a run folder that answers questions.

    Raises:
        ArgumentError: the model cannot be computed here with weights of this type.
        RunError: the folder is missing, damaged or written by a newer version, or it is a run of another task.
    """
    try:
        return load_tool(path, "answer", _of_run, device, trust_code=trust_code, dtype=dtype)
    except (KeyError, ValidationError) as error:
        raise RunError(f"{path} is damaged: its tokenizer or the settings of its corpus are missing") from error


def _of_run(run: Run) -> QuestionAnswerer:
    settings = LabelledSettings.model_validate(run.config.corpus.get("labelled"))
    return QuestionAnswerer(run.model, run.tokenizers["text"], settings.maximum_length)
