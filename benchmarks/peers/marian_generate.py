"""Hugging Face's `generate` with a Marian model of the same size as attent's Transformer and random weights.

Such a model has not learned when to stop: each batch takes as many steps as the longest of attent's translations of its
lines.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace

import torch
from _measured import arguments, ids, model_in, say
from marian import PAD, model_of, padded

# Lines for warming up.
WARM = 64


def seconds(model: torch.nn.Module, lines: list[list[int]], steps: list[int], batch: int, beam: int) -> float:
    """Return the seconds to translate all lines, from shortest to longest."""
    started = time.perf_counter()
    for first in range(0, len(lines), batch):
        source, length = padded(lines[first : first + batch]), max(steps[first : first + batch])
        limits = {"num_beams": beam, "do_sample": False, "max_new_tokens": length, "min_new_tokens": length}
        model.generate(input_ids=source, attention_mask=(source != PAD).long(), **limits)
    return time.perf_counter() - started


def speeds(options: Namespace) -> dict[str, dict[str, float]]:
    """Return lines per second, by search and batch size."""
    lines = ids(options.folder / "lines.txt")
    searches = json.loads((options.folder / "searches.json").read_text(encoding="utf-8"))
    pieces = len((options.folder / "vocabulary.txt").read_text(encoding="utf-8").splitlines())
    model = model_of(model_in(options.folder), pieces).eval()
    rates: dict[str, dict[str, float]] = {}
    with torch.no_grad():
        for name, search in searches.items():
            seconds(model, lines[:WARM], search["steps"][:WARM], WARM, search["beam"])
            rates[name] = {
                str(batch): len(lines) / seconds(model, lines, search["steps"], batch, search["beam"])
                for batch in search["batches"]
            }
    return rates


def main() -> None:
    """Translate and print the speed."""
    options = arguments(__doc__)
    say("transformers", lines_per_second=speeds(options), threads=options.threads)


if __name__ == "__main__":
    main()
