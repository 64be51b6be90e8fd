"""Training a small translator beside its peers: source and target tokens a second on the same batches, all sides in turn.

    benchmarks/train.py DIR [--model transformer|rnn] [--preset tiny] [--pieces 10000] [--tokens 4096] [--rounds N] [--updates N]

Of a Transformer, plain PyTorch's peer is `nn.Transformer` of the same size in a loop as tutorials have it, but with length buckets: in
float32, under bfloat16 autocast, and compiled besides. Of an RNN with attention, with the sizes of configs/multi30k-bahdanau.toml, they
are `nn.GRU` both ways over the source, packed sequences or not, and a loop of `nn.GRUCell`, its keys projected once a sentence and the
output layer applied to all steps at once. Other projects take part where scripts/peers has made their environments: each trains by its
own loop, in float32, a model of the same size on the same pieces, in a process of its own once a round. Multi30k from DIR, one
vocabulary of BPE pieces.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from _peers import TRAINED, Peers, write
from _sides import show

from attent.experiments import bench_training, corpora
from attent.models.settings import TRANSFORMER_PRESETS

# Updates of another project before those that count.
WARM = 3


def rate(peers: Peers, name: str, folder: Path, asked: argparse.Namespace) -> float | None:
    """Another project's tokens a second."""
    how = ("--updates", asked.updates, "--warmup", WARM, "--tokens", asked.tokens, "--threads", asked.threads)
    found = peers.said(name, folder, *how)
    return None if found is None else found["tokens_per_second"]


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where Multi30k is")
    parser.add_argument("--model", default="transformer", choices=("transformer", "rnn"))
    parser.add_argument("--preset", default="tiny", choices=TRANSFORMER_PRESETS, help="of a transformer")
    parser.add_argument("--attention", default="bahdanau", choices=("bahdanau", "luong", "none"), help="of our rnn")
    parser.add_argument("--pieces", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=4096, help="target tokens a batch, padding included")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=10, help="of each side a round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out, which takes minutes")
    asked = parser.parse_args()
    model = bench_training.transformer(asked.preset) if asked.model == "transformer" else bench_training.rnn(asked.attention)
    pairs, tokenizer, name = corpora.load_pairs(asked.folder, asked.pieces)
    data, peers = corpora.bitext(pairs, tokenizer), Peers(TRAINED[asked.model])
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), data, model, asked.pieces, asked.tokens, WARM + asked.updates + 1)
        report = bench_training.compare(
            model,
            data,
            asked.pieces,
            name,
            tokens=asked.tokens,
            rounds=asked.rounds,
            updates=asked.updates,
            threads=(asked.threads,),
            compiled=asked.model == "transformer" and not asked.no_compile,
            say=lambda line: print(line, file=sys.stderr, flush=True),
            peers={f"{peer}, float32": partial(rate, peers, peer, Path(folder), asked) for peer in peers.there},
        )
    show(replace(report, notes=[*report.notes, *peers.versions.values(), *peers.notes]))


if __name__ == "__main__":
    main()
