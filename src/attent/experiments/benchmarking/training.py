"""Training beside plain PyTorch: source and target tokens a second on the same batches, all sides in turn."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from attent.data.batches import Batch, BatchSize, BatchStream, Bitext
from attent.devices import synchronize
from attent.errors import UnknownNameError
from attent.experiments.benchmarking.machine import CPU, machine, peak
from attent.experiments.benchmarking.plain.rnn import PlainRnn
from attent.experiments.benchmarking.plain.training import update_of
from attent.experiments.benchmarking.plain.transformer import PlainTransformer
from attent.experiments.benchmarking.report import Column, Report, Row, Table
from attent.models.rnn_settings import RnnSettings
from attent.models.settings import build
from attent.models.transformer_settings import PRESETS, TransformerSettings
from attent.training.autotune import ComputeConfig, Precision
from attent.training.distributed import Processes, silent_progress
from attent.training.loop import Training
from attent.training.memory import limit_heap
from attent.training.settings import TrainingSettings

Update = Callable[[Batch], None]
ModelSettings = TransformerSettings | RnnSettings
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
OURS = "attent"
# The widths of configs/multi30k-bahdanau.toml.
RNN_WIDTH, RNN_DROPOUT = 256, 0.2
# By the kind of our model and by name: what plain PyTorch has in its place.
PLAIN: dict[str, dict[str, Callable[[Any, int], nn.Module]]] = {
    "transformer": {"nn.Transformer": PlainTransformer},
    "rnn": {
        "nn.GRU (padded) and nn.GRUCell": partial(PlainRnn, packed=False),
        "nn.GRU (packed) and nn.GRUCell": partial(PlainRnn, packed=True),
    },
}


@dataclass(frozen=True)
class Side:
    """One way to train.

    Args:
        name: what it is called.
        pace: the precision, and on how many threads.
        update: learns from one batch.
    """

    name: str
    pace: ComputeConfig
    update: Update


def transformer(preset: str = "tiny") -> TransformerSettings:
    """A Transformer as nn.Transformer can be: norms before sub-layers, sinusoidal positions, one embedding.

    Raises:
        UnknownNameError: there is no such preset.
    """
    if preset not in PRESETS:
        raise UnknownNameError("preset", preset, PRESETS)
    return TransformerSettings(**PRESETS[preset], norm="pre", dropout=0.1, share_embeddings="all")


def rnn(attention: Literal["none", "bahdanau", "luong"] = "bahdanau") -> RnnSettings:
    """The recurrent encoder-decoder, one layer of gated recurrent units each."""
    return RnnSettings(
        attention=attention,
        embedding_width=RNN_WIDTH,
        width=RNN_WIDTH,
        encoder_width=RNN_WIDTH,
        embedding_dropout=RNN_DROPOUT,
        context_dropout=RNN_DROPOUT,
        output_dropout=RNN_DROPOUT,
    )


class _Given(Processes):
    """Hands the training loop one batch at a time, whichever its own would be."""

    batch: Batch | None = None

    def next_part(self, batches: BatchStream) -> tuple[Batch, int]:
        return super().next_part(batches) if self.batch is None else (self.batch, self.batch.tokens)


def ours(model: ModelSettings, pieces: int, pace: ComputeConfig, data: Bitext, tokens: int, device: torch.device = CPU) -> Update:
    """An update as `attent train` makes it, by its own loop."""
    settings = TrainingSettings(
        updates=2**31, batch_tokens=tokens, schedule="constant", warmup=0, precision=pace.precision, threads=pace.threads
    )
    given = _Given()
    training = Training(build(model, pieces, pieces).to(device), data, settings, dict, lambda record: None, silent_progress(), None, given)

    def update(batch: Batch) -> None:
        given.batch = batch
        training.train_step()

    return update


def theirs(
    name: str, model: ModelSettings, pieces: int, precision: Precision, *, compiled: bool = False, device: torch.device = CPU
) -> Update:
    """An update of one of plain PyTorch's models of the same kind and size."""
    made = PLAIN[model.kind][name]
    return update_of(made(model, pieces).to(device), TrainingSettings(updates=1, batch_tokens=1), precision, compiled=compiled)


def sides_of(
    model: ModelSettings,
    pieces: int,
    data: Bitext,
    tokens: int,
    *,
    threads: Sequence[int],
    compiled: bool = False,
    device: torch.device = CPU,
) -> list[Side]:
    """Every way to train that is compared: ours and plain PyTorch's, in float32 and with 16 bits, on so many threads each.

    Args:
        model: of which kind and size.
        pieces: tokens in the vocabulary.
        data: the pairs.
        tokens: target tokens of a batch, padding included.
        threads: each number that is tried.
        compiled: whether plain PyTorch is also compiled; in 16 bits, on the most threads.
        device: where every side computes.
    """
    sides: list[Side] = []
    for number in threads:
        on = "" if len(threads) == 1 else f", {number} thread{'s' if number > 1 else ''}"
        paces = [ComputeConfig(precision, number) for precision in PRECISIONS]
        sides += [Side(f"{OURS}, {pace.precision}{on}", pace, ours(model, pieces, pace, data, tokens, device)) for pace in paces]
        for name in PLAIN[model.kind]:
            for pace in paces:
                how = f"{name}, {pace.precision}{' autocast' if pace.precision != 'float32' else ''}"
                sides.append(Side(f"{how}{on}", pace, theirs(name, model, pieces, pace.precision, device=device)))
                if compiled and pace == (PRECISIONS[-1], max(threads)):
                    update = theirs(name, model, pieces, pace.precision, compiled=True, device=device)
                    sides.append(Side(f"{how}, torch.compile{on}", pace, update))
    return sides


def measure(
    sides: Sequence[Side],
    batches: Iterator[Batch],
    rounds: int,
    updates: int,
    *,
    device: torch.device = CPU,
    say: Callable[[str], None] = lambda line: None,
    others: Mapping[str, Callable[[], float | None]] | None = None,
) -> dict[str, list[float]]:
    """Tokens a second of each side in each round; a round has as many updates of each side, of the same batches.

    Args:
        sides: the ways to train, in the order in which they take turns.
        batches: where batches come from.
        rounds: how many count; one before them does not.
        updates: of each side in a round.
        device: where the sides compute.
        say: told which side works.
        others: further sides that measure themselves, in processes of their own: each is asked once in every round that counts, and
            says its tokens a second, or None where it has failed, and is then left out.
    """
    found: dict[str, list[float]] = {side.name: [] for side in sides}
    before = torch.get_num_threads()
    try:
        for number in range(rounds + 1):
            some = list(itertools.islice(batches, updates))
            tokens = sum(int(batch.source_lengths.sum()) + batch.tokens for batch in some)
            for side in sides:
                say(f"{f'round {number} of {rounds}' if number else 'warming up'}: {side.name}")
                torch.set_num_threads(side.pace.threads)
                synchronize(device)
                started = time.perf_counter()
                for batch in some:
                    side.update(batch)
                synchronize(device)
                if number:
                    found[side.name].append(tokens / (time.perf_counter() - started))
            for name, asked in (others or {}).items() if number else ():
                say(f"round {number} of {rounds}: {name}")
                if (rate := asked()) is not None:
                    found.setdefault(name, []).append(rate)
    finally:
        torch.set_num_threads(before)
    return found


COLUMNS = (
    Column("side", ""),
    Column("best", "tokens/s, best round", ",.0f"),
    Column("median", "tokens/s, median", ",.0f"),
    Column("times", "attent's best / this", ".2f"),
)


def rows(found: Mapping[str, Sequence[float]]) -> list[Row]:
    """A row for each side: its best round, the middle of its rounds, and how many times as fast our best is."""
    fastest = max(max(rates) for name, rates in found.items() if name.startswith(OURS))
    return [
        {"side": name, "best": max(rates), "median": statistics.median(rates), "times": fastest / max(rates)}
        for name, rates in found.items()
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
    others: Mapping[str, Callable[[], float | None]] | None = None,
) -> Report:
    """Measure training, ours beside plain PyTorch's: `sides_of` and `measure` together, whose arguments these are.

    `name` is what the data are called; the threads are all that torch has unless given.
    """
    torch.manual_seed(0)
    limit_heap()
    most = torch.get_num_threads()
    sides = sides_of(model, pieces, data, tokens, threads=threads or (most,), compiled=compiled, device=device)
    torch.set_num_threads(most)
    found = measure(sides, data.stream(BatchSize(tokens=tokens), 1), rounds, updates, device=device, say=say, others=others)
    held = peak(device)
    notes = [] if held is None else [f"Most memory held, all sides in one process: {held:,.0f} MiB."]
    title = f"Training, {named(model)}, {pieces:,} pieces, batches of {tokens:,} tokens, {name}"
    return Report(title, machine(device), [Table("", COLUMNS, rows(found))], notes)


def named(model: ModelSettings) -> str:
    """The model's kind and sizes in a few words."""
    if isinstance(model, RnnSettings):
        looks = "without attention" if model.attention == "none" else f"with {model.attention.capitalize()}'s attention"
        return f"RNN {looks}, {model.width} wide"
    sizes = {name for name, preset in PRESETS.items() if all(getattr(model, key) == value for key, value in preset.items())}
    return next(iter(sizes), f"Transformer {model.encoder_layers} + {model.decoder_layers} × {model.width}")
