"""Training speed beside plain PyTorch: source and target tokens per second on the same batches, alternating sides."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from _machine import peak_memory
from _plain_pytorch import PlainRnn, PlainTransformer, training_update
from _report import CPU, Column, Report, ResultTable, Row, machine_info
from torch import nn

from attent.devices import limit_heap_fragmentation, limit_threads, synchronize
from attent.errors import check_known
from attent.models.build import build
from attent.models.settings import TRANSFORMER_PRESETS, RnnSettings, TransformerSettings
from attent.text.batches import Batch, BatchSize, BatchStream, Bitext
from attent.training.autotune import ComputeConfig, Precision
from attent.training.distributed import Processes
from attent.training.loop import Training
from attent.training.progress import SilentProgress
from attent.training.settings import TrainingSettings

Update = Callable[[Batch], None]
# Measures a peer in a separate process: tokens per second, or None after it failed.
PeerRate = Callable[[], float | None]
ModelSettings = TransformerSettings | RnnSettings
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
ATTENT = "attent"
# The widths of configs/multi30k-bahdanau.toml.
RNN_WIDTH, RNN_DROPOUT = 256, 0.2
# The plain PyTorch models, by the kind of attent's model and by name.
PLAIN: dict[str, dict[str, Callable[[Any, int], nn.Module]]] = {
    "transformer": {"nn.Transformer": PlainTransformer},
    "rnn": {
        "nn.GRU (padded) and nn.GRUCell": partial(PlainRnn, packed=False),
        "nn.GRU (packed) and nn.GRUCell": partial(PlainRnn, packed=True),
    },
}


@dataclass(frozen=True)
class Side:
    """A way to train.

    Args:
        name: the name in the table.
        compute: the precision and threads.
        update: the function that trains on one batch.
    """

    name: str
    compute: ComputeConfig
    update: Update


def transformer(preset: str = "tiny") -> TransformerSettings:
    """Return settings of a Transformer that nn.Transformer can match.

    It has norms before sub-layers, sinusoidal positions and one embedding.

    Raises:
        UnknownNameError: there is no such preset.
    """
    check_known("preset", preset, TRANSFORMER_PRESETS)
    return TransformerSettings(**TRANSFORMER_PRESETS[preset], norm="pre", dropout=0.1, share_embeddings="all")


def rnn(attention: Literal["none", "bahdanau", "luong"] = "bahdanau") -> RnnSettings:
    """Return settings of the recurrent encoder-decoder, with one layer of gated recurrent units each."""
    widths = dict.fromkeys(("embedding_width", "width", "encoder_width"), RNN_WIDTH)
    dropouts = dict.fromkeys(("embedding_dropout", "context_dropout", "output_dropout"), RNN_DROPOUT)
    return RnnSettings.model_validate({"attention": attention, **widths, **dropouts})


class _FixedBatch(Processes):
    """Gives the training loop a chosen batch instead of the next one of its stream."""

    batch: Batch | None = None

    def next_part(self, batches: BatchStream) -> tuple[Batch, int]:
        return super().next_part(batches) if self.batch is None else (self.batch, self.batch.tokens)


def attent_update(
    model: ModelSettings, pieces: int, compute: ComputeConfig, data: Bitext, tokens: int, device: torch.device = CPU
) -> Update:
    """Return an update function that uses the loop of `attent train`."""
    settings = TrainingSettings(
        updates=2**31,
        batch_tokens=tokens,
        schedule="constant",
        warmup=0,
        precision=compute.precision,
        threads=compute.threads,
    )
    source, module = _FixedBatch(), build(model, pieces, pieces).to(device)
    training = Training(module, data, settings, dict, lambda record: None, SilentProgress(), None, source)

    def update(batch: Batch) -> None:
        source.batch = batch
        training.train_step()

    return update


def make_sides(
    model: ModelSettings,
    pieces: int,
    data: Bitext,
    tokens: int,
    *,
    threads: Sequence[int],
    compiled: bool = False,
    device: torch.device = CPU,
) -> list[Side]:
    """Return the sides of a comparison.

    They are attent and plain PyTorch, in float32 and with 16 bits, on each number of threads.

    Args:
        model: the kind and size of the model.
        pieces: the vocabulary size.
        data: the pairs.
        tokens: the target tokens per batch, including padding.
        threads: the numbers of threads to try.
        compiled: whether to also measure compiled PyTorch, in 16 bits on the largest number of threads.
        device: the device of every side.
    """
    plain_settings, sides = TrainingSettings(updates=1, batch_tokens=1), list[Side]()
    for number in threads:
        suffix = "" if len(threads) == 1 else f", {number} thread{'s' if number > 1 else ''}"
        configs = [ComputeConfig(precision, number) for precision in PRECISIONS]
        for compute in configs:
            update = attent_update(model, pieces, compute, data, tokens, device)
            sides.append(Side(f"{ATTENT}, {compute.precision}{suffix}", compute, update))
        for (name, build_plain), compute in itertools.product(PLAIN[model.kind].items(), configs):
            title = f"{name}, {compute.precision}{' autocast' if compute.precision != 'float32' else ''}"
            is_compiled_too = compiled and compute == (PRECISIONS[-1], max(threads))
            for ending, is_compiled in (("", False), (", torch.compile", True))[: 1 + is_compiled_too]:
                update = training_update(
                    build_plain(model, pieces).to(device), plain_settings, compute.precision, compiled=is_compiled
                )
                sides.append(Side(f"{title}{ending}{suffix}", compute, update))
    return sides


def measure(
    sides: Sequence[Side],
    batches: Iterator[Batch],
    rounds: int,
    updates: int,
    *,
    device: torch.device = CPU,
    say: Callable[[str], None] = lambda line: None,
    peers: Mapping[str, PeerRate] | None = None,
) -> dict[str, list[float]]:
    """Measure the tokens per second of each side in each round, with the same batches for all sides.

    Args:
        sides: the sides, in the order of their turns.
        batches: the stream of batches.
        rounds: the number of rounds that count; one more before them warms up.
        updates: the updates of each side per round.
        device: the device of the sides.
        say: receives the name of the running side.
        peers: further sides that measure themselves, once in every round that counts; after a failure they are left
            out.
    """
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    with limit_threads():
        for number in range(rounds + 1):
            round_batches = list(itertools.islice(batches, updates))
            tokens = sum(int(batch.source_lengths.sum()) + batch.tokens for batch in round_batches)
            for side in sides:
                say(f"{f'round {number} of {rounds}' if number else 'warming up'}: {side.name}")
                torch.set_num_threads(side.compute.threads)
                synchronize(device)
                begin = time.perf_counter()
                for batch in round_batches:
                    side.update(batch)
                synchronize(device)
                if number:
                    rates[side.name].append(tokens / (time.perf_counter() - begin))
            for name, peer in (peers or {}).items() if number else ():
                say(f"round {number} of {rounds}: {name}")
                if (rate := peer()) is not None:
                    rates.setdefault(name, []).append(rate)
    return rates


COLUMNS = (
    Column("side", ""),
    Column("best", "tokens/s, best round", ",.0f"),
    Column("median", "tokens/s, median", ",.0f"),
    Column("times", "attent's best / this", ".2f"),
)


def table_rows(rates: Mapping[str, Sequence[float]]) -> list[Row]:
    """Return a row for each side.

    It contains the best round, the median, and how many times as fast attent's best is.
    """
    fastest = max(max(numbers) for name, numbers in rates.items() if name.startswith(ATTENT))
    return [
        {"side": name, "best": max(numbers), "median": statistics.median(numbers), "times": fastest / max(numbers)}
        for name, numbers in rates.items()
    ]


def compare(
    model: ModelSettings,
    data: Bitext,
    pieces: int,
    name: str,
    *,
    tokens: int = 4096,
    rounds: int = 3,
    updates: int = 5,
    threads: Sequence[int] = (),
    compiled: bool = False,
    device: torch.device = CPU,
    say: Callable[[str], None] = lambda line: None,
    peers: Mapping[str, PeerRate] | None = None,
) -> Report:
    """Compare training with plain PyTorch: `make_sides` and `measure` in one call, with their arguments.

    `name` is the name of the data; without `threads`, all of torch's threads are used.
    """
    torch.manual_seed(0)
    limit_heap_fragmentation()
    with limit_threads():
        sides = make_sides(
            model, pieces, data, tokens, threads=threads or (torch.get_num_threads(),), compiled=compiled, device=device
        )
    rates = measure(
        sides, data.stream(BatchSize(tokens=tokens), 1), rounds, updates, device=device, say=say, peers=peers
    )
    peak = peak_memory(device)
    notes = [] if peak is None else [f"Most memory held, all sides in one process: {peak:,.0f} MiB."]
    return Report(
        f"Training, {model_title(model)}, {pieces:,} pieces, batches of {tokens:,} tokens, {name}",
        machine_info(device),
        [ResultTable("", COLUMNS, table_rows(rates))],
        notes,
    )


def model_title(model: ModelSettings) -> str:
    """Return the model's kind and sizes in a few words."""
    if isinstance(model, RnnSettings):
        attention = (
            "without attention" if model.attention == "none" else f"with {model.attention.capitalize()}'s attention"
        )
        return f"RNN {attention}, {model.width} wide"
    sizes = {
        name
        for name, preset in TRANSFORMER_PRESETS.items()
        if all(getattr(model, key) == value for key, value in preset.items())
    }
    return next(iter(sizes), f"Transformer {model.encoder_layers} + {model.decoder_layers} × {model.width}")
