"""Classification: the class of pictures, of sequences of vectors or of texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from attent.data.batches import BatchSize
from attent.data.disk_pairs import WorkingFolder
from attent.data.labelled.corpus import LabelledCorpus, drop_long, drop_unreadable, encode_rows, image_corpus, labelled_text_corpus
from attent.data.labelled.examples import LabelledExamples, Rows
from attent.data.labelled.inputs import INPUTS, Inputs, TextInputs
from attent.data.labelled.lending import lend, lent
from attent.data.labelled.settings import ImagesSettings, LabelledSettings
from attent.data.tokenizers import learn
from attent.decoding.classifier import Classifier
from attent.evaluation.classes import Confusion, confusion
from attent.models.encoder import EncoderModel
from attent.tasks.settings import RunSettings
from attent.tasks.task import Evaluator, Results, Say, Task, Vocabularies
from attent.training.loss import LossFunction, classification_loss

# Mistakes that a person is shown after a validation.
SHOWN = 3


@dataclass
class ClassificationCorpus:
    """A corpus of labelled examples as a recipe uses it; see `attent.tasks.task.Corpus`."""

    data: LabelledCorpus
    images: ImagesSettings | None
    texts: LabelledSettings | None
    folders: list[WorkingFolder] = field(default_factory=list)
    # texts as the tokens of the run, whose tokenizers are the same throughout, so that they are cut once
    tokens: Rows | None = None

    @property
    def table(self) -> dict[str, Any]:
        """As the run folder keeps it."""
        if self.images is not None:
            return {"images": self.images.model_dump(mode="json", exclude_unset=True)}
        assert self.texts is not None
        return {"labelled": self.texts.model_dump(mode="json")}

    @property
    def said(self) -> Callable[[], list[str]]:
        return lambda: [*self.data.remarks, *(line for report in self.data.reports for line in report.summary()), self._divided()]

    @property
    def lend(self) -> Callable[[LabelledExamples], Path]:
        def lending(examples: LabelledExamples) -> Path:
            self.folders.append(WorkingFolder())
            return lend(examples, self.folders[-1].path)

        return lending

    def _divided(self) -> str:
        found = self.data
        train, validation, test = (f"{len(rows):,}" for rows in (found.train, found.validation, found.test))
        return f"{len(found.inputs.labels)} classes: {train} examples to train on, {validation} to validate on, {test} to test"


class ClassificationTask(Task[ClassificationCorpus]):
    """Learns to tell the class of a sequence from a vector in front of it."""

    @property
    def loss(self) -> LossFunction:
        return classification_loss

    def corpus(self, settings: RunSettings) -> ClassificationCorpus:
        if settings.images is not None:
            return ClassificationCorpus(image_corpus(settings.images), settings.images, None)
        assert settings.labelled is not None
        return ClassificationCorpus(labelled_text_corpus(settings.labelled), None, settings.labelled)

    def held_out_digest(self, corpus: ClassificationCorpus) -> str | None:
        return corpus.data.held_out_digest

    def learn_vocabularies(self, corpus: ClassificationCorpus) -> Vocabularies:
        found, settings = corpus.data, corpus.texts
        inputs, files = found.inputs, {INPUTS: found.inputs.model_dump_json(indent=2) + "\n"}
        if settings is None:
            assert not isinstance(inputs.inputs, TextInputs)
            return Vocabularies({}, (), files, (inputs.inputs.size, len(inputs.labels)))
        assert isinstance(found.data, tuple)
        tokenizer = learn(settings.tokenizer, [found.data[row] for row in found.train], settings.size)
        return Vocabularies({"text": settings.tokenizer}, (tokenizer,), files, (tokenizer.size, len(inputs.labels)))

    def encode(self, corpus: ClassificationCorpus, learnt: Vocabularies) -> LabelledExamples:
        rows = _read(corpus, learnt, corpus.images)
        if corpus.texts is not None:
            corpus.data = drop_long(corpus.data, rows.lengths, corpus.texts.maximum_length)
        corpus.data = drop_unreadable(corpus.data, rows.lengths, learnt.longest)
        return LabelledExamples(rows, corpus.data.classes, corpus.data.train)

    def open_shared(self, settings: RunSettings, folder: Path, learnt: Vocabularies) -> LabelledExamples:
        return lent(folder, Inputs.read(learnt.files[INPUTS]), settings.images)

    def evaluator(self, model: EncoderModel, corpus: ClassificationCorpus, learnt: Vocabularies, settings: RunSettings) -> Evaluator:
        inputs, rows = Inputs.read(learnt.files[INPUTS]), _read(corpus, learnt, None)
        if corpus.texts is not None:
            most, report = corpus.texts.maximum_length, int(corpus.texts.valid is not None)
            corpus.data = drop_long(corpus.data, rows.lengths, most, "validation", report=report)
        corpus.data = drop_unreadable(corpus.data, rows.lengths, model.longest)
        parts = {name: LabelledExamples(rows, corpus.data.classes, chosen) for name, chosen in _parts(corpus.data).items()}
        size = BatchSize(settings.training.batch_pairs, settings.training.batch_tokens)
        return ClassificationEvaluator(Classifier(model, inputs, next(iter(learnt.tokenizers), None)), parts, size)


class ClassificationEvaluator(Evaluator):
    """Evaluates a classifier on the parts of its corpus that are held out."""

    def __init__(self, classifier: Classifier, parts: Mapping[str, LabelledExamples], size: BatchSize) -> None:
        self._classifier, self._parts, self._size = classifier, parts, size

    def validate(self, say: Say) -> dict[str, float]:
        if "validation" not in self._parts:
            return {}
        loss, found = evaluate_classifier(self._classifier, self._parts["validation"], self._size)
        for label, told, count in found.top_confusions(SHOWN):
            say(f"  {label} taken for {told}: {count}")
        return {"loss": loss, "accuracy": found.accuracy, "macro F1": found.macro_f1}

    def results(self, last: Mapping[str, float]) -> Results:
        results: Results = {"validation": {"examples": len(self._parts["validation"]), **last}} if "validation" in self._parts else {}
        if "test" in self._parts:
            loss, found = evaluate_classifier(self._classifier, self._parts["test"], self._size)
            results["test"] = {"examples": int(found.counts.sum()), "loss": loss, "accuracy": found.accuracy, "macro F1": found.macro_f1}
        return results


def evaluate_classifier(classifier: Classifier, examples: LabelledExamples, size: BatchSize | None = None) -> tuple[float, Confusion]:
    """The mean cross entropy in nats per example, and which classes were taken for which.

    Args:
        classifier: in evaluation mode.
        examples: with their classes, at least one.
        size: how many are told side by side.
    """
    told, classes = classifier.log_probs(examples, size), examples.classes
    loss = -told[np.arange(len(classes)), classes].mean().item()
    return loss, confusion(classes, told.argmax(-1).numpy(), classifier.labels)


def _read(corpus: ClassificationCorpus, learnt: Vocabularies, images: ImagesSettings | None) -> Rows:
    """What a model reads of a corpus."""
    if corpus.tokens is not None:
        return corpus.tokens
    rows = encode_rows(corpus.data, Inputs.read(learnt.files[INPUTS]), learnt.tokenizers, images)
    if corpus.texts is not None:
        corpus.tokens = rows
    return rows


def _parts(corpus: LabelledCorpus) -> dict[str, np.ndarray]:
    """The parts that nothing is learnt from, as far as there are any."""
    return {name: rows for name, rows in (("validation", corpus.validation), ("test", corpus.test)) if len(rows)}
