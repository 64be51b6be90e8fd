"""Training speed of a small translator beside its peers.

It measures source and target tokens per second on the same batches, with alternating sides.

    benchmarks/train.py [DATA] [--model transformer|rnn] [--preset tiny] [--pieces 10000] [--tokens 4096] [--rounds N]
        [--updates N]

The PyTorch peer of a Transformer is `nn.Transformer` of the same size in the loop of tutorials, with length buckets
added: in float32, under bfloat16 autocast, and also compiled. The PyTorch peer of an RNN with attention, with the sizes
of configs/multi30k-bahdanau.toml, is a bidirectional `nn.GRU` over the source, with packed sequences or without, and a
loop of `nn.GRUCell`, with the keys projected once a sentence and the output layer applied to all steps at once. Other
projects take part where scripts/peers has made their environments: each trains a model of the same size on the same
pieces by its own loop, in float32, in a new process each round. DATA is Multi30k's folder or pairs in a .tsv or
.jsonl, with one vocabulary of BPE pieces; without it sentences are synthetic.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import _corpora as corpora
import _training
import torch
from _peers import TRAINED, Peers, write
from _sides import show

from attent.models.settings import TRANSFORMER_PRESETS

# Updates for warming up another project, which do not count.
WARM = 3


def rate(peers: Peers, name: str, folder: Path, options: argparse.Namespace) -> float | None:
    """Return another project's tokens per second."""
    flags = ("--updates", options.updates, "--warmup", WARM, "--tokens", options.tokens, "--threads", options.threads)
    result = peers.run(name, folder, *flags)
    return None if result is None else result["tokens_per_second"]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="Multi30k's folder, or a file of pairs")
    parser.add_argument("--model", default="transformer", choices=("transformer", "rnn"))
    parser.add_argument("--preset", default="tiny", choices=TRANSFORMER_PRESETS, help="of a transformer")
    parser.add_argument("--attention", default="bahdanau", choices=("bahdanau", "luong", "none"), help="of our rnn")
    parser.add_argument("--pieces", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=4096, help="target tokens a batch, padding included")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=10, help="of each side a round")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile, which takes minutes")
    options = parser.parse_args()
    model = (
        _training.transformer(options.preset) if options.model == "transformer" else _training.rnn(options.attention)
    )
    pairs, tokenizer, name = corpora.load_pairs(options.data, options.pieces)
    data, peers = corpora.bitext(pairs, tokenizer), Peers(TRAINED[options.model])
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), data, model, options.pieces, options.tokens, WARM + options.updates + 1)
        report = _training.compare(
            model,
            data,
            options.pieces,
            name,
            tokens=options.tokens,
            rounds=options.rounds,
            updates=options.updates,
            threads=(options.threads,),
            compiled=options.model == "transformer" and not options.no_compile,
            say=lambda line: print(line, file=sys.stderr, flush=True),
            peers={f"{peer}, float32": partial(rate, peers, peer, Path(folder), options) for peer in peers.available},
        )
    show(replace(report, notes=[*report.notes, *peers.versions.values(), *peers.notes]))


if __name__ == "__main__":
    main()
