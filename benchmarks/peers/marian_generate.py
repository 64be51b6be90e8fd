"""Hugging Face's `generate` of a Marian model as large as attent's Transformer, with weights that nobody has trained.

Such weights do not know when to stop: each batch takes as many steps as the longest of attent's own translations of its lines.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace

import torch
from _measured import arguments, ids, model_in, say
from marian import PAD, model_of, padded

# Lines that warm up.
WARM = 64


def seconds(model: torch.nn.Module, lines: list[list[int]], steps: list[int], batch: int, beam: int) -> float:
    """How long all lines take, from the shortest to the longest."""
    started = time.perf_counter()
    for first in range(0, len(lines), batch):
        source, most = padded(lines[first : first + batch]), max(steps[first : first + batch])
        how = {"num_beams": beam, "do_sample": False, "max_new_tokens": most, "min_new_tokens": most}
        model.generate(input_ids=source, attention_mask=(source != PAD).long(), **how)
    return time.perf_counter() - started


def measured(asked: Namespace) -> dict[str, dict[str, float]]:
    """Lines a second, by search and by batch."""
    lines = ids(asked.folder / "lines.txt")
    searches = json.loads((asked.folder / "searches.json").read_text(encoding="utf-8"))
    pieces = len((asked.folder / "vocabulary.txt").read_text(encoding="utf-8").splitlines())
    model = model_of(model_in(asked.folder), pieces).eval()
    found: dict[str, dict[str, float]] = {}
    with torch.no_grad():
        for name, search in searches.items():
            seconds(model, lines[:WARM], search["steps"][:WARM], WARM, search["beam"])
            found[name] = {
                str(batch): len(lines) / seconds(model, lines, search["steps"], batch, search["beam"]) for batch in search["batches"]
            }
    return found


def main() -> None:
    """Translate, and say how fast."""
    asked = arguments(__doc__)
    say("transformers", lines_per_second=measured(asked), threads=asked.threads)


if __name__ == "__main__":
    main()
