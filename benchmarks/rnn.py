"""Training an RNN encoder-decoder with attention beside plain PyTorch: source and target tokens a second on the same batches, in turn.

    benchmarks/rnn.py DIR [--attention bahdanau|luong|none] [--pieces 10000] [--tokens 4096] [--rounds N] [--updates N]

The peers are what tutorials have, with length buckets besides: `nn.GRU` both ways over the source, and a loop of `nn.GRUCell` with
Bahdanau's attention, its keys projected once a sentence and the output layer applied to all steps at once; in float32 and under
bfloat16 autocast, their encoder with packed sequences and without. Multi30k from DIR, the sizes of configs/multi30k-bahdanau.toml.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from _sides import show

from attent.benchmarking import corpus, training


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where Multi30k is")
    parser.add_argument("--attention", default="bahdanau", choices=("bahdanau", "luong", "none"), help="of our own model")
    parser.add_argument("--pieces", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=4096, help="target tokens a batch, padding included")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=10, help="of each side a round")
    asked = parser.parse_args()
    pairs, tokenizer, name = corpus.read(asked.folder, asked.pieces)
    report = training.compare(
        training.rnn(asked.attention),
        corpus.bitext(pairs, tokenizer),
        asked.pieces,
        name,
        tokens=asked.tokens,
        rounds=asked.rounds,
        updates=asked.updates,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    show(report)


if __name__ == "__main__":
    main()
