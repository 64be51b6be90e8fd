"""Settings that follow from the size of a text alone, for people who name nothing but their pairs.

Small models with much dropout for few pairs, larger ones with less for many: on 29,000 pairs the smallest published
Transformer translates best (Wu et al. 2021, §4.2, arXiv:2105.14462).
"""

from __future__ import annotations

from typing import Any, NamedTuple

# Tokens a sentence is expected to have, to turn epochs into updates before the text has been cut.
TOKENS = 20
LEAST, MOST = 200, 100_000  # updates
VALIDATIONS = 5
# So many times more epochs where a few blanks of each line are learnt from, other ones each time.
BLANKED = 3
# Of examples to classify: few, many, and how many an update has.
FEW, MANY, BATCH = 5_000, 50_000, 64
# What a preset decides.
SIZES = frozenset({"preset", "layers", "width", "feed_forward", "heads"})


class Size(NamedTuple):
    """What suits texts of fewer than so many pairs."""

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


def suggest(pairs: int, task: str = "translate") -> dict[str, dict[str, Any]]:
    """The tables [model] and [training] that suit so many pairs, or lines in which blanks are to be guessed."""
    if task == "classify":
        return _suggested_texts(pairs)
    size, epochs = next(size for size in BY_PAIRS if pairs < size.below), BLANKED if task == "fill-mask" else 1
    updates = min(max(epochs * size.epochs * pairs * TOKENS // (size.batch_tokens * size.accumulate), LEAST), MOST)
    # the last update is validated too, and shall not come right behind another validation
    every = updates // VALIDATIONS
    updates = every * VALIDATIONS
    return {
        "model": {"preset": size.preset, "norm": "pre", "position": "rotary", "dropout": size.dropout},
        "training": {
            "updates": updates,
            "batch_tokens": size.batch_tokens,
            "accumulate": size.accumulate,
            "learning_rate": 2e-3,
            "schedule": "cosine",
            "warmup": max(updates // 10, 1),
            # a guess' probability is to be what it says
            "label_smoothing": 0.0 if task == "fill-mask" else 0.1,
            "validate_every": every,
        },
    }


def suggest_pictures(examples: int, task: str = "classify") -> dict[str, dict[str, Any]]:
    """The tables [model], [training] and [images] that suit so many pictures: small ones are learnt by more than they are.

    Without shifts, turns and scales a Transformer, which knows nothing of neighbourhood, needs far more pictures than other models
    (Dosovitskiy et al. 2020, §4.3, arXiv:2010.11929).
    """
    return suggest_vectors(examples, task) | {"images": {"shift": 0.5, "turn": 8, "scale": 0.05}}


def suggest_vectors(examples: int, task: str = "classify") -> dict[str, dict[str, Any]]:
    """The tables [model] and [training] that suit so many sequences of vectors."""
    few = examples < FEW
    sizes = {"layers": 3, "width": 64, "feed_forward": 128} if few else {}
    epochs = 60 if few else 30 if examples < MANY else 10
    every = max(epochs * examples // (BATCH * VALIDATIONS), LEAST // VALIDATIONS)
    return {
        "model": {"preset": "tiny", **sizes, "norm": "pre", "activation": "gelu", "dropout": 0.0 if few else 0.1, "output_bias": True},
        "training": {
            "updates": every * VALIDATIONS,
            "batch_pairs": BATCH,
            "learning_rate": 3e-3 if few else 1e-3,
            "weight_decay": 0.05,
            "schedule": "cosine",
            "warmup": max(every * VALIDATIONS // 10, 1),
            "label_smoothing": 0.1,
            "validate_every": every,
        },
    }


def summary(tables: dict[str, dict[str, Any]], pairs: int) -> str:
    """What was chosen, in one line."""
    model, training = tables["model"], tables["training"]
    unit = "tokens" if "batch_tokens" in training else "examples"
    size = training.get("batch_tokens") or training["batch_pairs"]
    preset = f"preset {model['preset']}" + "".join(f", {name} {model[name]}" for name in ("layers", "width") if name in model)
    varied = "; pictures shifted, turned and scaled a little" if "images" in tables else ""
    return (
        f"{pairs:,} {'lines' if unit == 'tokens' else 'examples'}: {preset} with dropout {model['dropout']}, "
        f"{training['updates']:,} updates of {size * training.get('accumulate', 1):,} {unit}{varied}"
    )


def _suggested_texts(texts: int) -> dict[str, dict[str, Any]]:
    """The tables [model] and [training] that suit so many labelled texts."""
    tables = suggest(texts)
    return tables | {"model": tables["model"] | {"dropout": min(tables["model"]["dropout"], 0.2), "output_bias": True}}
