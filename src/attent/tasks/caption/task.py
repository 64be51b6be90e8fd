"""The task of putting pictures into words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from attent.runs.config import RunConfig
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.caption.captioner import Captioner, load, picture_inputs
from attent.tasks.caption.corpus import TEST, TRAIN, VALIDATION, CaptionCorpus, CaptionExamples, read_captions
from attent.tasks.caption.settings import CaptionsSettings
from attent.tasks.classification.inputs import INPUTS, Inputs
from attent.tasks.evaluation import Evaluation, Results, Say, result_lines
from attent.tasks.suggestions import Tables, suggest_captions
from attent.tasks.task import Evaluator, Task, TaskRun, TaskSettings, Vocabularies
from attent.tasks.translation.evaluation import bleu, exact_match
from attent.tasks.translation.task import sample_lines
from attent.text.batches import BatchSize
from attent.text.text import Pair
from attent.text.tokenizer import Tokenizer
from attent.text.tokenizers import learn
from attent.training.loss import mean_loss, translation_cross_entropy
from attent.views.scene import Scene


class CaptionTask(Task[CaptionCorpus]):
    """Learns to put pictures into words."""

    name = "caption"
    does = "captions"
    goal = "caption"
    command = "attent caption {run} PICTURE"
    tokenizers = ("target",)
    model_kinds = ("transformer", "rnn")
    tables: ClassVar = {"captions": CaptionsSettings}
    loss = staticmethod(translation_cross_entropy)
    load = staticmethod(load)

    def model_settings(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        return {"input": "vectors"}

    def suggest(self, files: Mapping[str, str], minutes: float | None = None) -> tuple[Tables, int]:
        captions = len(read_captions(files["source"])[TRAIN])
        return suggest_captions(captions), captions

    def corpus(self, settings: TaskSettings) -> CaptionCorpus:
        return CaptionCorpus(settings.captions)

    def learn_vocabularies(self, corpus: CaptionCorpus) -> Vocabularies:
        captions, kind = [corpus.pairs[row].target for row in corpus.parts[TRAIN]], corpus.settings.tokenizer
        tokenizer = learn(kind, captions, corpus.settings.vocabulary)
        files = {INPUTS: Inputs(labels=(), inputs=corpus.inputs).model_dump_json(indent=2) + "\n"}
        return Vocabularies({"target": kind}, (tokenizer,), files, (corpus.inputs.size, tokenizer.size))

    def encode(self, corpus: CaptionCorpus, vocabularies: Vocabularies) -> CaptionExamples:
        return corpus.examples(TRAIN, picture_inputs(vocabularies.files), vocabularies.tokenizers[0])

    def evaluator(
        self, model: Any, corpus: CaptionCorpus, vocabularies: Vocabularies, settings: TaskSettings
    ) -> Evaluator:
        captioner = Captioner(model, picture_inputs(vocabularies.files), vocabularies.tokenizers[0])
        return CaptionEvaluator(
            captioner, corpus, BatchSize(settings.training.batch_pairs, settings.training.batch_tokens)
        )

    def sizes(self, config: RunConfig, tokenizers: Sequence[Tokenizer]) -> tuple[int, int]:
        return config.sizes[0] if config.sizes else 0, tokenizers[0].size

    def evaluate(
        self, run: TaskRun, say: Say, *, images: str | None = None, search: SearchSettings = GREEDY
    ) -> Evaluation:
        """Evaluate a run on the held-out pictures of its corpus, which is read again, or on other pictures.

        Args:
            run: the run.
            say: shows a message to the user.
            images: a source of pictures with captions; of a folder with train.tsv, the last of its parts.
            search: search settings.

        Raises:
            ArgumentError: the corpus cannot be read again.
            DataError: the pictures or captions cannot be read, or the corpus has changed.
        """
        if images is None:
            results = run.validate(say, search)
        else:
            part, pairs = [*read_captions(images).items()][-1]
            name = part if Path(images).is_dir() else Path(images).stem
            results = {name: {"captions": len(pairs), **_score(run.tool, pairs, search)[1]}}
        return Evaluation(results, result_lines(results))

    def scene(self, run: TaskRun, text: str, *, gradients: bool = False, translation: str | None = None) -> Scene:
        """Return the attention of a run while it puts a picture file into words.

        Args:
            run: the run.
            text: the file.
            gradients: see `Inference.scene`.
            translation: the caption to show; the run's own by default.
        """
        return run.tool.scene(text, translation, gradients=gradients)

    def unknown_words(self, run: TaskRun, text: str) -> list[str]:
        return []


class CaptionEvaluator(Evaluator):
    """Evaluates a captioner on the held-out parts of its corpus."""

    def __init__(self, captioner: Captioner, corpus: CaptionCorpus, size: BatchSize) -> None:
        self._captioner, self._size = captioner, size
        self._parts = {part: [corpus.pairs[row] for row in rows] for part, rows in corpus.parts.items()}
        self._validation = corpus.examples(VALIDATION, captioner.inputs, captioner.tokenizer)
        self.rows = len(self._validation)

    def validate(self, say: Say) -> dict[str, float]:
        if not (pairs := self._parts[VALIDATION]):
            return {}
        captions, scores = _score(self._captioner, pairs, self.search)
        for line in sample_lines(pairs, captions):
            say(line)
        return {"loss": mean_loss(self._captioner.model, self._validation, self._size)} | scores

    def results(self, last: Mapping[str, float]) -> Results:
        test = _score(self._captioner, self._parts[TEST], self.search)[1] if self._parts[TEST] else {}
        parts = {VALIDATION: last, TEST: test}
        return {part: {"captions": len(self._parts[part]), **scores} for part, scores in parts.items() if scores}


def _score(captioner: Captioner, pairs: Sequence[Pair], search: SearchSettings) -> tuple[list[str], dict[str, float]]:
    """Return the caption of each picture, and scores by name."""
    captions = captioner.caption([pair.source for pair in pairs], search)
    references = [pair.target for pair in pairs]
    return captions, {"exact match": exact_match(captions, references), "BLEU": bleu(captions, references).score}
