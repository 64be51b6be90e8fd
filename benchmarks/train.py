"""Training a small translator beside plain PyTorch: source and target tokens a second on the same batches, both sides in turn.

    benchmarks/train.py DIR [--preset tiny] [--pieces 10000] [--tokens 4096] [--rounds N] [--updates N] [--no-compile]

The peers are `nn.Transformer` of the same size in a loop as tutorials have it, but with length buckets: in float32, under bfloat16
autocast, and compiled besides. Multi30k from DIR, one vocabulary of BPE pieces.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from _sides import show

from attent.benchmarking import corpus, training
from attent.models.transformer_settings import PRESETS


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where Multi30k is")
    parser.add_argument("--preset", default="tiny", choices=PRESETS)
    parser.add_argument("--pieces", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=4096, help="target tokens a batch, padding included")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=10, help="of each side a round")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out, which takes minutes")
    asked = parser.parse_args()
    pairs, tokenizer, name = corpus.read(asked.folder, asked.pieces)
    report = training.compare(
        training.transformer(asked.preset),
        corpus.bitext(pairs, tokenizer),
        asked.pieces,
        name,
        tokens=asked.tokens,
        rounds=asked.rounds,
        updates=asked.updates,
        compiled=not asked.no_compile,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    show(report)


if __name__ == "__main__":
    main()
