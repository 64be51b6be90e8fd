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


class Size(NamedTuple):
    """What suits texts of fewer than so many pairs."""

    below: float
    preset: str
    dropout: float
    batch_tokens: int
    accumulate: int
    epochs: int


SIZES = (
    Size(20_000, "tiny", 0.3, 1024, 1, 20),
    Size(200_000, "tiny", 0.2, 4096, 1, 25),
    Size(float("inf"), "small", 0.1, 512, 16, 8),
)


def suggested(pairs: int, task: str = "translate") -> dict[str, dict[str, Any]]:
    """The tables [model] and [training] that suit so many pairs, or lines in which blanks are to be guessed."""
    size, epochs = next(size for size in SIZES if pairs < size.below), BLANKED if task == "fill-mask" else 1
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


def in_words(tables: dict[str, dict[str, Any]], pairs: int) -> str:
    """What was chosen, in one line."""
    model, training = tables["model"], tables["training"]
    return (
        f"{pairs:,} lines: preset {model['preset']} with dropout {model['dropout']}, "
        f"{training['updates']:,} updates of {training['batch_tokens'] * training['accumulate']:,} tokens"
    )
