"""Examples to classify, without labels: texts, pictures or vectors from a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from attent.errors import ArgumentError, DataError
from attent.tasks.classification.arrays import read_npz
from attent.tasks.classification.classifier import Classifier
from attent.tasks.classification.inputs import Data
from attent.tasks.classification.pictures import Pictures, load_digits, picture_files
from attent.tasks.classification.settings import DIGITS
from attent.text.sources import source_lines

NAMES = {"pictures": "pictures", "vectors": "sequences of vectors"}


def read_examples(
    classifier: Classifier, source: str, say: Callable[[str], None], *, invert: bool = False
) -> tuple[list[str], Data]:
    """Read examples to classify, and the name of each: the text itself, the picture's file, or a number.

    Args:
        classifier: the classifier, which reads one kind of example.
        source: a text or a file of lines; a picture, a folder of pictures, or "digits"; an .npz; or "-" to read lines,
            or the names of picture files, from standard input.
        say: shows a message if there is also a folder of pictures called "digits".
        invert: whether to invert the brightness of pictures.

    Raises:
        ArgumentError: the source does not hold the kind of examples that the run reads.
        DataError: it cannot be read, or holds no picture.
    """
    kind, path = classifier.inputs.inputs.kind, Path(source)
    if invert and kind != "pictures":
        raise ArgumentError(f"--invert is for pictures, and this run reads {kind}")
    examples: Any
    if kind == "texts":
        examples = source_lines(source)
    elif path.suffix == ".npz":
        examples = read_npz(source, labelled=False)
        content = "pictures" if isinstance(examples, Pictures) else "vectors"
        if content != kind:
            raise ArgumentError(f"this run reads {NAMES[kind]}, and {source} holds {NAMES[content]}")
    elif kind == "vectors":
        raise ArgumentError(f"this run reads {NAMES[kind]}, from an .npz, got {source or repr(source)}")
    elif source == DIGITS:
        # as in training, even if a folder has this name: often that of the run
        if path.is_dir() and picture_files(path):
            say(f"{DIGITS} are scikit-learn's; the folder here is ./{DIGITS}")
        examples = load_digits()
    else:
        files = source_lines(source) if source == "-" else picture_files(path) if path.is_dir() else [source]
        examples = [str(file) for file in files if str(file).strip()]
        if not examples:
            raise DataError(f"{source} has no picture")
    names = examples if isinstance(examples, list) else [str(number) for number in range(len(examples))]
    data = classifier.data(examples)
    if invert:
        assert isinstance(data, Pictures)
        data = Pictures((255 if data.pixels.dtype.kind == "u" else 1) - data.pixels, data.classes, data.labels)
    return names, data
