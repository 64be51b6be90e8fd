"""Translation by our own engine, by ONNX's runtime under our search, and by CTranslate2 in float32, in turn in one process.

    benchmarks/translate.py RUN FILE [--lines N] [--rounds N] [--threads N]

RUN is a run folder; an engine whose package is not installed, or which has no export in RUN/export, is left out.
"""

from __future__ import annotations

import argparse
import sys
from itertools import islice
from pathlib import Path

import torch
from _sides import show

from attent.benchmarking.translating import compare
from attent.data.reading import lines


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    texts = list(islice((line for line in lines(given.file) if line), given.lines))
    show(compare(given.run, texts, rounds=given.rounds, say=lambda line: print(line, file=sys.stderr, flush=True)))


if __name__ == "__main__":
    main()
