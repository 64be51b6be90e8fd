"""Suggested settings, based only on the size of the training data.

Few pairs get a small model with high dropout, many pairs a larger one with less: on 29,000 pairs, the smallest
published
Transformer translates best (Wu et al. 2021, §4.2, arXiv:2105.14462).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from attent.errors import ArgumentError, DataError
from attent.text.readers import STANDARD_INPUT, read_lines

# Settings by the name of their table.
Tables = dict[str, dict[str, Any]]
# The assumed number of lines of standard input, which cannot be counted before it is read.
UNCOUNTED = 20_000
# Expected tokens of a sentence, to convert epochs to updates before the text is tokenized.
TOKENS = 20
MIN_UPDATES, MAX_UPDATES = 200, 100_000
VALIDATIONS = 5
# The share of training in which the learning rate rises: chosen from 2, 5, 10, 20 and 40 %
# (benchmarks/results/training.md).
WARMUP = 0.1
# Expected characters per sentence, and the mean line length above which lines are joined into running text.
SENTENCE, LONG_LINE = 100, 1_000
# Factor of epochs for masked lines, since each epoch masks only a few tokens of a line, different ones each time.
MASKED_EPOCHS = 3
# Language models, masked or not, use none: their probabilities should be calibrated.
LABEL_SMOOTHING = 0.1
# Upper bounds of small and medium sets of examples to classify, and examples per update.
SMALL_SET, MEDIUM_SET, BATCH = 5_000, 50_000, 64
# The peak learning rate for fine-tuning is this divided by the model's width: 3e-4 for tiny, a tenth of its rate when
# trained from scratch, and 8e-5 for base, the usual rate for fine-tuning such models; at most 1e-3.
ADAPTED_RATE, MAX_ADAPTED_RATE = 0.04, 1e-3
# Settings determined by a preset.
SIZES = frozenset({"preset", "layers", "encoder_layers", "decoder_layers", "width", "feed_forward", "heads"})


class Size(NamedTuple):
    """Settings for texts of fewer than `below` pairs."""

    below: float
    preset: str
    dropout: float
    batch_tokens: int
    accumulate: int
    epochs: int


BY_PAIRS = (
    Size(20_000, "tiny", 0.3, 1024, 1, 20),
    Size(200_000, "tiny", 0.2, 4096, 1, 25),
    Size(float("inf"), "small", 0.1, 512, 16, 8),
)


# Trainings of at most this many minutes use a small model and small batches, since they benefit from more updates. The
# dropout is for many pairs, each of which is seen only a few times.
SHORT_MINUTES, SHORT_DROPOUT = 10, 0.1


def count_lines(files: Mapping[str, str]) -> tuple[int, int]:
    """Return the numbers of lines and characters to train on.

    Args:
        files: file names, by their keys in a corpus table.

    Raises:
        ArgumentError: none of them is a training file.
        DataError: the file is empty or cannot be read.
    """
    file = files.get("train") or files.get("train_source")
    if file is None:
        raise ArgumentError(
            "there is nothing to train on: give --train, --train-source and --train-target, --text, --images or "
            "--labelled"
        )
    if file == STANDARD_INPUT:
        return UNCOUNTED, UNCOUNTED * SENTENCE
    lines = characters = 0
    for line in read_lines(file):
        lines, characters = lines + 1, characters + len(line)
    if not lines:
        raise DataError(f"{file}: empty")
    return lines, characters


def suggest(
    pairs: int, minutes: float | None = None, *, epochs: int = 1, label_smoothing: float = LABEL_SMOOTHING
) -> Tables:
    """Return the tables [model] and [training] for a number of pairs, or of lines for a language model.

    Args:
        pairs: number of pairs or lines.
        minutes: training time in minutes; None to limit training by a number of updates derived from `pairs`.
        epochs: factor applied to a translator's number of epochs.
        label_smoothing: label smoothing of the loss.
    """
    size = next(size for size in BY_PAIRS if pairs < size.below)
    if minutes is not None and minutes <= SHORT_MINUTES:
        size = size._replace(
            preset=BY_PAIRS[0].preset,
            dropout=size.dropout if size is BY_PAIRS[0] else SHORT_DROPOUT,
            batch_tokens=BY_PAIRS[0].batch_tokens,
            accumulate=1,
        )
    updates = min(
        max(epochs * size.epochs * pairs * TOKENS // (size.batch_tokens * size.accumulate), MIN_UPDATES), MAX_UPDATES
    )
    # the last update is validated too: it should not follow right after another validation
    validate_every = updates // VALIDATIONS
    updates = validate_every * VALIDATIONS
    return {
        "model": {"preset": size.preset, "norm": "pre", "position": "rotary", "dropout": size.dropout},
        "training": {
            **({"updates": updates} if minutes is None else {"minutes": minutes}),
            "batch_tokens": size.batch_tokens,
            "accumulate": size.accumulate,
            "learning_rate": 2e-3,
            "schedule": "cosine",
            "warmup": WARMUP,
            "label_smoothing": label_smoothing,
            "validate_every": validate_every,
        },
    }


def suggest_labelled(texts: int, minutes: float | None = None) -> Tables:
    """Return the tables [model] and [training] for a number of texts to classify."""
    tables = suggest(texts, minutes)
    return tables | {"model": tables["model"] | {"dropout": min(tables["model"]["dropout"], 0.2), "output_bias": True}}


def suggest_text(lines: int, characters: int, minutes: float | None = None) -> Tables:
    """Return the tables [model] and [training] for text generation, based on the length of the text.

    Long lines are joined into running text.

    Args:
        lines: number of lines.
        characters: number of characters of all lines.
        minutes: see `suggest`.
    """
    tables = suggest(max(characters // SENTENCE, 1), minutes, label_smoothing=0.0)
    return tables | ({"lines": {"packing": "text"}} if characters > LONG_LINE * lines else {})


def fine_tuning(tables: Tables, width: int) -> Tables:
    """Return suggested tables for fine-tuning a model.

    The tables have no [model], since the model keeps its own, and a lower learning rate.

    Args:
        tables: the tables suggested for the data.
        width: width of the model.
    """
    training = tables["training"] | {"learning_rate": float(f"{min(ADAPTED_RATE / width, MAX_ADAPTED_RATE):.1g}")}
    return {name: table for name, table in tables.items() if name != "model"} | {"training": training}


def suggest_pictures(examples: int) -> Tables:
    """Return the tables [model], [training] and [images] for a number of pictures; small sets are augmented.

    Without shifts, rotations and scaling, a Transformer, which has no built-in notion of neighborhood, needs far more
    pictures than other models (Dosovitskiy et al. 2020, §4.3, arXiv:2010.11929).
    """
    return suggest_vectors(examples) | {"images": {"shift": 0.5, "turn": 8, "scale": 0.05}}


def suggest_captions(captions: int) -> Tables:
    """Return the tables [model] and [training] for a number of pictures with captions, with those of `suggest_vectors`.

    Attention finds a word's region more reliably with one decoder layer (docs/captions.md).
    """
    sizes = {"preset": "tiny", "encoder_layers": 2, "decoder_layers": 1, "width": 64, "feed_forward": 128}
    return suggest_vectors(captions) | {"model": sizes | {"norm": "pre", "activation": "gelu", "dropout": 0.1}}


def suggest_vectors(examples: int) -> Tables:
    """Return the tables [model] and [training] for a number of sequences of vectors."""
    is_small = examples < SMALL_SET
    sizes = {"layers": 3, "width": 64, "feed_forward": 128} if is_small else {}
    epochs = 60 if is_small else 30 if examples < MEDIUM_SET else 10
    validate_every = max(epochs * examples // (BATCH * VALIDATIONS), MIN_UPDATES // VALIDATIONS)
    return {
        "model": {
            "preset": "tiny",
            **sizes,
            "norm": "pre",
            "activation": "gelu",
            "dropout": 0.0 if is_small else 0.1,
            "output_bias": True,
        },
        "training": {
            "updates": validate_every * VALIDATIONS,
            "batch_pairs": BATCH,
            "learning_rate": 3e-3 if is_small else 1e-3,
            "weight_decay": 0.05,
            "schedule": "cosine",
            "warmup": WARMUP,
            "label_smoothing": 0.1,
            "validate_every": validate_every,
        },
    }


def summary(tables: Tables, pairs: int) -> str:
    """Summarize the suggestion in one line."""
    model, training = tables.get("model"), tables["training"]
    unit = "tokens" if "batch_tokens" in training else "examples"
    size = training.get("batch_tokens") or training["batch_pairs"]
    if model is None:
        start = f"the run's own model, learning rate {training['learning_rate']:g}"
    else:
        sizes = "".join(f", {name} {model[name]}" for name in ("layers", "width") if name in model)
        start = f"preset {model['preset']}{sizes} with dropout {model['dropout']}"
    augmentation = "; pictures shifted, turned and scaled a little" if "images" in tables else ""
    packing = "; lines as running text" if "packing" in tables.get("lines", {}) else ""
    length = (
        f"{training['minutes']:g} minutes of updates" if "minutes" in training else f"{training['updates']:,} updates"
    )
    return (
        f"{pairs:,} {'lines' if unit == 'tokens' else 'examples'}, suggested: {start}, "
        f"{length} of {size * training.get('accumulate', 1):,} {unit}{augmentation}{packing}"
    )
