"""The task of classifying pictures, sequences of vectors or texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from attent.alignment.ablation import ACCURACY, CLASS_LOSS
from attent.errors import ArgumentError
from attent.models.encoder import EncoderModel
from attent.ops.linear_cross_entropy import linear_cross_entropy
from attent.runs.config import RunConfig
from attent.tasks.classification.classifier import Classifier, load, scene_of_example
from attent.tasks.classification.corpus import (
    LabelledCorpus,
    check_inputs,
    count_examples,
    drop_long,
    drop_unreadable,
    image_corpus,
    labelled_text_corpus,
)
from attent.tasks.classification.evaluation import (
    ClassJudge,
    Confusion,
    classification_report,
    evaluate_classifier,
    held_out_examples,
    labelled_examples,
)
from attent.tasks.classification.inputs import (
    INPUTS,
    Inputs,
    LabelledBatch,
    LabelledExamples,
    Rows,
    TextInputs,
    encode_rows,
)
from attent.tasks.classification.settings import ImagesSettings, LabelledSettings
from attent.tasks.evaluation import Evaluation, Results, Say
from attent.tasks.suggestions import Tables, count_lines, suggest_labelled, suggest_pictures, suggest_vectors
from attent.tasks.task import Evaluator, Task, TaskRun, TaskSettings, Vocabularies
from attent.text.batches import BatchSize
from attent.text.tokenizer import Tokenizer
from attent.text.tokenizers import learn
from attent.training.autotune import Precision, autocast
from attent.views.scene import Scene

# The number of confusions to show after a validation.
MAX_SHOWN = 3


def classification_cross_entropy(
    model: EncoderModel, batch: LabelledBatch, label_smoothing: float, precision: Precision
) -> Tensor:
    """Return the mean cross entropy of a batch's classes in nats.

        y = softmax(W z⁰);  loss = −log y[class]

    z⁰ are the features of the class token: Dosovitskiy et al. (2020), §3.1, eq. 4, arXiv 2010.11929.
    """
    batch = batch.trim_padding(model.longest)
    with autocast(batch.lengths.device, precision):
        features, layer = model(batch.sequence, batch.lengths)[:, 0], model.to_logits
        return linear_cross_entropy(features, layer.weight, layer.bias, batch.classes, label_smoothing)


@dataclass
class ClassificationCorpus:
    """Labeled examples; see `attent.tasks.task.TaskCorpus`."""

    data: LabelledCorpus
    images: ImagesSettings | None
    texts: LabelledSettings | None
    folder: Path | None = None
    # encoded texts: the tokenizer does not change during a run, so texts are encoded once
    tokens: Rows | None = None

    @property
    def table(self) -> dict[str, Any]:
        """Return the settings for the run folder."""
        if self.images is not None:
            return {"images": self.images.model_dump(mode="json", exclude_unset=True)}
        assert self.texts is not None
        return {"labelled": self.texts.model_dump(mode="json")}

    def report(self) -> list[str]:
        """Return a report, line by line, on the data read and the sizes of the parts."""
        data = self.data
        train, validation, test = (f"{len(rows):,}" for rows in (data.train, data.validation, data.test))
        classes = f"{len(data.inputs.labels)} classes: " * (len(data.inputs.labels) > 1)
        sizes = f"{classes}{train} examples to train on, {validation} to validate on, {test} to test"
        return [*data.remarks, *(line for report in data.reports for line in report.summary()), sizes]


class ClassificationTask(Task[ClassificationCorpus]):
    """Learns to classify a sequence by its [CLS] vector."""

    name = "classify"
    does = "classifies"
    goal = "classify"
    command = "attent classify {run} FILE"
    needs_tokenizers = False
    model_kinds = ("encoder",)
    tables: ClassVar = {"images": ImagesSettings, "labelled": LabelledSettings}
    metrics = ("accuracy", "loss")
    loss = staticmethod(classification_cross_entropy)
    load = staticmethod(load)

    def model_settings(self, tables: Mapping[str, Any]) -> dict[str, Any]:
        required = {"kind": "encoder", "cls": True}
        return required if tables.get("images") is None else required | {"input": "vectors"}

    def suggest(self, files: Mapping[str, str], minutes: float | None = None) -> tuple[Tables, int]:
        if "train" in files:
            texts, _ = count_lines(files)
            return suggest_labelled(texts, minutes), texts
        if "source" not in files:
            raise ArgumentError("--size requires --images, or settings with [images]")
        examples, are_pictures = count_examples(files["source"])
        return (suggest_pictures if are_pictures else suggest_vectors)(examples), examples

    def corpus(self, settings: TaskSettings) -> ClassificationCorpus:
        if settings.images is not None:
            return ClassificationCorpus(image_corpus(settings.images), settings.images, None)
        return ClassificationCorpus(labelled_text_corpus(settings.labelled), None, settings.labelled)

    def held_out_digest(self, corpus: ClassificationCorpus) -> str | None:
        return corpus.data.held_out_digest

    def learn_vocabularies(self, corpus: ClassificationCorpus) -> Vocabularies:
        data, settings, inputs = corpus.data, corpus.texts, corpus.data.inputs
        files = {INPUTS: inputs.model_dump_json(indent=2) + "\n"}
        if settings is None:
            assert not isinstance(inputs.inputs, TextInputs)
            return Vocabularies({}, (), files, (inputs.inputs.size, len(inputs.labels)))
        assert isinstance(data.data, tuple)
        tokenizer = learn(settings.tokenizer, [data.data[row] for row in data.train], settings.size)
        return Vocabularies({"text": settings.tokenizer}, (tokenizer,), files, (tokenizer.size, len(inputs.labels)))

    def encode(self, corpus: ClassificationCorpus, vocabularies: Vocabularies) -> LabelledExamples:
        rows = _read(corpus, vocabularies, corpus.images)
        if corpus.texts is not None:
            corpus.data = drop_long(corpus.data, rows.lengths, corpus.texts.maximum_length)
        corpus.data = drop_unreadable(corpus.data, rows.lengths, vocabularies.longest)
        return LabelledExamples(rows, corpus.data.classes, corpus.data.train)

    def evaluator(
        self, model: EncoderModel, corpus: ClassificationCorpus, vocabularies: Vocabularies, settings: TaskSettings
    ) -> Evaluator:
        inputs, rows = Inputs.read(vocabularies.files[INPUTS]), _read(corpus, vocabularies, None)
        if corpus.texts is not None:
            report = int(corpus.texts.valid is not None)
            corpus.data = drop_long(corpus.data, rows.lengths, corpus.texts.maximum_length, "validation", report=report)
        corpus.data = drop_unreadable(corpus.data, rows.lengths, model.longest)
        held_out = {"validation": corpus.data.validation, "test": corpus.data.test}
        classes = corpus.data.classes
        parts = {name: LabelledExamples(rows, classes, chosen) for name, chosen in held_out.items() if len(chosen)}
        size = BatchSize(settings.training.batch_pairs, settings.training.batch_tokens)
        classifier = Classifier(model, inputs, next(iter(vocabularies.tokenizers), None))
        return ClassificationEvaluator(classifier, parts, size)

    def sizes(self, config: RunConfig, tokenizers: Sequence[Tokenizer]) -> tuple[int, int]:
        return tokenizers[0].size, tokenizers[0].size if config.sizes is None else config.sizes[1]

    def evaluate(
        self, run: TaskRun, say: Say, *, images: str | None = None, labelled: str | Path | None = None
    ) -> Evaluation:
        """Evaluate a run on the held-out examples of its corpus, which is read again, or on other labeled examples.

        Args:
            run: the run.
            say: shows a message to the user.
            images: the source of pictures or vectors, all of which are classified.
            labelled: the file of texts, all of which are classified.

        Raises:
            ArgumentError: the examples are not of the kind that the run reads, or its corpus has no held-out examples.
            DataError: they cannot be read, or have a label that the run does not know.
        """
        classifier: Classifier = run.tool
        if images is not None and labelled is not None:
            raise ArgumentError("give either --images or --labelled")
        if images is None and labelled is None:
            examples = held_out_examples(run.path, classifier, say)
        else:
            examples = labelled_examples(classifier, say, images=images, labelled=labelled)
        say(f"classifying {len(examples):,} examples")
        return classification_report(*evaluate_classifier(classifier, examples))

    def judge(self, run: TaskRun, file: str, metric: str, say: Say, *, limit: int | None = None) -> ClassJudge:
        classifier: Classifier = run.tool
        kind = "images" if classifier.tokenizer is None else "labelled"
        examples = labelled_examples(classifier, say, **{kind: file})
        examples = LabelledExamples(examples.rows, examples.all_classes, examples.selected[:limit])
        return ClassJudge(classifier, examples, ACCURACY if metric == "accuracy" else CLASS_LOSS)

    def scene(self, run: TaskRun, text: str, *, gradients: bool = False) -> Scene:
        """Return the attention of a run while it classifies a text or a picture file."""
        classifier: Classifier = run.tool
        if classifier.input_kind == "vectors":
            raise ArgumentError(
                "this run reads sequences of vectors: to see one, use attent classify RUN FILE.npz --row N "
                "--attention FILE"
            )
        return scene_of_example(classifier, [text], title=text, gradients=gradients)


class ClassificationEvaluator(Evaluator):
    """Evaluates a classifier on the held-out parts of its corpus."""

    def __init__(self, classifier: Classifier, parts: Mapping[str, LabelledExamples], size: BatchSize) -> None:
        self._classifier, self._parts, self._size = classifier, parts, size

    def validate(self, say: Say) -> dict[str, float]:
        if "validation" not in self._parts:
            return {}
        scores, matrix = self._scores("validation")
        for actual, predicted, count in matrix.top_confusions(MAX_SHOWN):
            say(f"  {actual} taken for {predicted}: {count}")
        return scores

    def results(self, last: Mapping[str, float]) -> Results:
        scores = {"validation": last, "test": self._scores("test")[0] if "test" in self._parts else {}}
        return {part: {"examples": len(examples), **scores[part]} for part, examples in self._parts.items()}

    def _scores(self, part: str) -> tuple[dict[str, float], Confusion]:
        loss, matrix = evaluate_classifier(self._classifier, self._parts[part], self._size)
        return {"loss": loss, "accuracy": matrix.accuracy, "macro F1": matrix.macro_f1}, matrix


def _read(corpus: ClassificationCorpus, vocabularies: Vocabularies, images: ImagesSettings | None) -> Rows:
    """Encode a corpus; texts are encoded only once."""
    if corpus.tokens is not None:
        return corpus.tokens
    inputs = Inputs.read(vocabularies.files[INPUTS])
    check_inputs(inputs, corpus.data.inputs)
    augmentation = None if images is None else images.augmentation
    rows = encode_rows(corpus.data.data, inputs, next(iter(vocabularies.tokenizers), None), augmentation)
    if corpus.texts is not None:
        corpus.tokens = rows
    return rows
