"""A trained classifier of pictures, of sequences of vectors or of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from attent.attention.capture.watch import watch
from attent.attention.maps.attention_map import AttentionMap, LabelledMap
from attent.errors import ArgumentError, DataError, RunError, check_index, refuse, reraise
from attent.layers.patches import patch_grid
from attent.models.encoder import EncoderModel
from attent.runs.config import DType
from attent.runs.folder import Run
from attent.tasks.classification.arrays import VectorSequences, check_finite, check_pixels
from attent.tasks.classification.corpus import UNITS
from attent.tasks.classification.inputs import (
    INPUTS,
    Data,
    Inputs,
    LabelledExamples,
    PictureInputs,
    TextInputs,
    VectorInputs,
    encode_rows,
)
from attent.tasks.classification.pictures import Pictures, read_pixels
from attent.tasks.from_run import FromRun, load_tool
from attent.text.batches import BatchSize
from attent.text.tokenizer import Tokenizer
from attent.views.build_scene import CLS, build_scene
from attent.views.scene import Picture, Scene
from attent.views.trace import ForwardPass

# The number of examples in a batch.
BATCH = 128
CLS_LABEL = "CLS"


@dataclass(frozen=True)
class Prediction:
    """The most probable classes of an example.

    Args:
        labels: the names of the classes, the most probable first.
        probabilities: the probability of each; over all classes, they sum to 1.
    """

    labels: tuple[str, ...]
    probabilities: tuple[float, ...]

    @property
    def label(self) -> str:
        """Return the most probable class."""
        return self.labels[0]


class Classifier(FromRun):
    """Classifies examples with a trained model.

    Args:
        model: an encoder with a [CLS] vector; it is set to evaluation mode.
        inputs: the names of the classes, and the kind of the model's inputs.
        tokenizer: the tokenizer of texts; None for other inputs.

    Raises:
        ArgumentError: the inputs or the tokenizer do not fit the model.
    """

    def __init__(self, model: EncoderModel, inputs: Inputs, tokenizer: Tokenizer | None = None) -> None:
        model.eval()
        reads, classes = (
            ("tokens" if isinstance(inputs.inputs, TextInputs) else "vectors"),
            model.to_logits.out_features,
        )
        size = None if isinstance(inputs.inputs, TextInputs) else inputs.inputs.size
        refuse(
            (
                reads != model.settings.input or (tokenizer is None) is (reads == "tokens"),
                f"{INPUTS} says that the model reads {inputs.inputs.kind}, and its settings and tokenizers say "
                "otherwise",
            ),
            (
                size is not None and size != getattr(model.embedding, "size", None),
                f"{INPUTS} says that the model reads vectors of {size} numbers, and it reads vectors of another size",
            ),
            (
                len(inputs.labels) != classes,
                f"{INPUTS} names {len(inputs.labels)} labels, and the model has {classes} classes",
            ),
        )
        self.model, self.inputs, self.tokenizer = model, inputs, tokenizer
        self.input_kind = inputs.inputs.kind
        self.device = next(model.parameters()).device
        # the classes in the order of the model's outputs, and the maximum length of an example
        self.labels, self.longest = inputs.labels, model.longest

    @overload
    def classify(self, examples: str | Path, *, best: int = ...) -> Prediction: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def classify(self, examples: Any, *, best: int = ...) -> list[Prediction]: ...
    def classify(self, examples: Any, *, best: int = 1) -> Prediction | list[Prediction]:
        """Return the most probable classes of each example.

        Args:
            examples: texts; or picture files, or pictures (N, H, W) or (N, H, W, C), bytes or floats from 0 to 1; or
                sequences of vectors (N, T, D), or a list of sequences (T, D). A single text or file, not in a list,
                gives a single result.
            best: the number of classes to return for each example; all classes if there are fewer.

        Raises:
            ArgumentError: the model reads another kind of example.
            DataError: a picture cannot be read, a number is not finite, or an example is longer than the model can
                read.
        """
        if isinstance(examples, str | Path):
            return self.classify([examples], best=best)[0]
        if best < 1:
            raise ArgumentError(f"best must be at least 1, got {best}")
        data = self.data(examples)
        if not len(data):
            return []
        probs, classes = self.log_probs(self.examples(data)).exp().topk(min(best, len(self.labels)), dim=-1)
        return [
            Prediction(tuple(self.labels[index] for index in row), tuple(row_probs))
            for row, row_probs in zip(classes.tolist(), probs.tolist(), strict=True)
        ]

    @torch.no_grad()
    def log_probs(self, examples: LabelledExamples, size: BatchSize | None = None) -> Tensor:
        """Return the log-probabilities of all classes, (N, C), float32.

        Args:
            examples: the examples to classify; their labels are not used.
            size: the batch size.

        Raises:
            DataError: an example is longer than the model can read.
        """
        if len(rows := self.too_long(examples)):
            self._check_length(int(rows[0]), int(examples.lengths()[rows[0]]))
        self.model.eval()
        log_probs = torch.zeros(len(examples), len(self.labels))
        for rows, batch in examples.sorted_batches(size or BatchSize(pairs=BATCH)):
            batch = batch.trim_padding(self.longest).to(self.device)
            logits = self.model.output(self.model(batch.sequence, batch.lengths)[:, 0])
            log_probs[torch.from_numpy(rows)] = logits.float().log_softmax(-1).cpu()
        return log_probs

    def maps(self, examples: Any, row: int = 0) -> dict[str, AttentionMap]:
        """Return the attention map of each layer for one example, (1, H, 1 + T, 1 + T), the first layer first.

        The first query and the first key are the [CLS] vector.

        Args:
            examples: the examples, as for `classify`.
            row: the index of the example, from 0.

        Raises:
            ArgumentError, DataError: as for `classify`, or there is no such example, or it is longer than the model can
                read.
        """
        return self.maps_and_gradients(examples, row, gradients=False)[0]

    @torch.no_grad()
    def maps_and_gradients(
        self, examples: Any, row: int = 0, *, gradients: bool = True
    ) -> tuple[dict[str, AttentionMap], dict[str, AttentionMap]]:
        """Return the attention maps of one example, and their weights times gradients.

        The gradients are those of the most probable class's log-probability.

        Args:
            examples: the examples, as for `classify`.
            row: the index of the example, from 0.
            gradients: False to compute no gradients.

        Raises:
            ArgumentError, DataError: as for `maps`.
        """
        rows = encode_rows(self.data(examples), self.inputs, self.tokenizer)
        length = int(rows.lengths[check_index("row", row, len(rows.lengths))])
        self._check_length(row, length)
        sequence = rows.read(np.array([row]), None)[:, :length]
        with torch.set_grad_enabled(gradients), watch(self.model, gradients=gradients) as maps:
            features = self.model(sequence.to(self.device), torch.tensor([length], device=self.device))
            derived = maps.last_gradients(self.model.output(features[:, 0]).log_softmax(-1).amax()) if gradients else {}
        return dict(maps.items()), derived

    def forward_pass(self, example: str) -> ForwardPass:
        """Return the forward pass over a text or a picture file; its output is at the [CLS] vector.

        Raises:
            ArgumentError, DataError: as for `classify`.
        """
        data = self.data([example])

        def run() -> dict[str, LabelledMap]:
            maps = self.maps(data)
            positions = (
                self.tokenizer.pieces(example)
                if self.tokenizer is not None
                else map(str, range(next(iter(maps.values())).shape[-1] - 1))
            )
            labels = (CLS_LABEL, *positions)
            return {name: LabelledMap(weights, labels, labels) for name, weights in maps.items()}

        return ForwardPass(example, self.model, run, "encoder", lambda index: self.labels[index], "classes", 0, [0])

    def examples(
        self, data: Data, classes: np.ndarray | None = None, chosen: np.ndarray | None = None
    ) -> LabelledExamples:
        """Encode data for the model.

        Args:
            data: N examples.
            classes: the class of each example, (N,); 0 by default.
            chosen: the indices of the examples to use, (M,); all by default.
        """
        rows = encode_rows(data, self.inputs, self.tokenizer)
        return LabelledExamples(rows, np.zeros(len(data), np.int64) if classes is None else classes, chosen)

    def too_long(self, examples: LabelledExamples) -> np.ndarray:
        """Return the indices of the examples that are longer than the model can read."""
        return np.flatnonzero(examples.lengths() > (np.inf if self.longest is None else self.longest))

    def data(self, examples: Any) -> Data:
        """Convert examples, as for `classify`, to the run's kind of data; raises the same errors."""
        if isinstance(examples, str | Path):
            examples = [examples]
        match self.inputs.inputs:
            case TextInputs():
                return _as_texts(examples)
            case PictureInputs() as inputs:
                return as_pictures(examples, inputs)
            case VectorInputs() as inputs:
                return _as_vectors(examples, inputs)

    def _check_length(self, row: int, length: int) -> None:
        if self.longest is not None and length > self.longest:
            raise DataError(f"example {row} has a length of {length}, more than the {self.longest} {UNITS}")


def load(
    path: Path | str, device: torch.device | str = "cpu", *, trust_code: bool = False, dtype: DType | None = None
) -> Classifier:
    """Load the classifier of a run folder.

    Raises:
        ArgumentError: the model cannot be computed here with weights of this type.
        RunError: the folder is missing, damaged or written by a newer version, or it is a run of another task.
    """
    return load_tool(path, "classify", partial(_of_run, path), device, trust_code=trust_code, dtype=dtype)


def _of_run(path: Path | str, run: Run) -> Classifier:
    if INPUTS not in run.files:
        raise RunError(f"{path} is damaged: it has no {INPUTS}")
    with reraise(RunError, path, ArgumentError, DataError):
        return Classifier(run.model, Inputs.read(run.files[INPUTS]), run.tokenizers.get("text"))


def _as_texts(examples: Any) -> tuple[str, ...]:
    if not isinstance(examples, Sequence) or not all(isinstance(text, str) for text in examples):
        raise ArgumentError(f"the run reads texts: give a list of them, got {_describe(examples)}")
    return tuple(examples)


def as_pictures(examples: Any, inputs: PictureInputs) -> Pictures:
    """Convert picture files, or an array of pictures, to pictures of the size and colors that a run reads.

    Raises:
        ArgumentError: they are neither, or an array of other axes.
        DataError: a picture cannot be read.
    """
    size = (inputs.height, inputs.width)
    expected = (*size, len(inputs.mean))
    if isinstance(examples, Pictures):
        pixels = examples.pixels
    elif isinstance(examples, np.ndarray | Tensor):
        pixels = check_pixels(np.asarray(examples), "pictures")
    elif isinstance(examples, Sequence) and all(isinstance(file, str | Path) for file in examples):
        files = [Path(file) for file in examples]
        pixels = read_pixels(files, size, inputs.colours) if files else np.zeros((0, *expected), np.uint8)
    else:
        raise ArgumentError(f"the run reads pictures: give a list of files, or an array, got {_describe(examples)}")
    if pixels.shape[1:] != expected:
        raise ArgumentError(f"the run reads pictures (H, W, C) = {expected}, got {pixels.shape[1:]}")
    return Pictures(pixels, None, ())


def _as_vectors(examples: Any, inputs: VectorInputs) -> VectorSequences:
    data = examples if isinstance(examples, VectorSequences) else _pad_vectors(examples, inputs.size)
    if data.vectors.shape[2] != inputs.size:
        raise ArgumentError(f"the run reads vectors of {inputs.size} numbers, and these have {data.vectors.shape[2]}")
    return data


def _pad_vectors(examples: Any, size_if_empty: int) -> VectorSequences:
    try:
        sequences = [np.asarray(sequence, np.float32) for sequence in examples]
    except (TypeError, ValueError):
        raise ArgumentError(
            f"the run reads sequences of vectors: give an array (N, T, D), got {_describe(examples)}"
        ) from None
    if wrong := [sequence.shape for sequence in sequences if sequence.ndim != 2 or not len(sequence)]:
        raise ArgumentError(f"each sequence of vectors must be (T, D), got {wrong[0]}")
    if len(sizes := {sequence.shape[1] for sequence in sequences}) > 1:
        raise ArgumentError(f"vectors must have the same width, got {sorted(sizes)}")
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)
    vectors = np.zeros((len(sequences), lengths.max(initial=1), next(iter(sizes), size_if_empty)), np.float32)
    for row, sequence in enumerate(sequences):
        vectors[row, : len(sequence)] = sequence
    return VectorSequences(check_finite(vectors, ""), lengths, None, ())


def _describe(examples: Any) -> str:
    shape = getattr(examples, "shape", None)
    return f"{type(examples).__name__} {tuple(shape)}" if shape is not None else repr(examples)[:60]


def scene_of_example(
    classifier: Classifier, examples: Any, row: int = 0, *, title: str = "", gradients: bool = False
) -> Scene:
    """Build the scene of a classifier's attention to one example; a picture is shown with its patches.

    Args:
        classifier: the classifier.
        examples: the examples, as for its `classify`.
        row: the index of the example, from 0.
        title: the title of the scene.
        gradients: whether to also show the weights times the output's gradients with respect to them.

    Raises:
        ArgumentError, DataError: as for `Classifier.maps`.
    """
    data = classifier.data(examples)
    maps, derived = classifier.maps_and_gradients(data, row, gradients=gradients)
    match classifier.inputs.inputs:
        case PictureInputs() as inputs:
            assert isinstance(data, Pictures)
            picture = Picture(data.pixels[row], patch_grid(inputs.height, inputs.width, inputs.patch), "tokens")
            return build_scene(maps, title=title, picture=picture, gradients=derived)
        case TextInputs():
            assert classifier.tokenizer is not None and isinstance(data, tuple)
            return build_scene(maps, (CLS, *classifier.tokenizer.pieces(data[row])), title=title, gradients=derived)
        case _:
            return build_scene(
                maps, (CLS, *map(str, range(next(iter(maps.values())).shape[-1] - 1))), title=title, gradients=derived
            )
