"""attent bench: speed and memory on this machine, beside plain PyTorch."""

from __future__ import annotations

import json
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attent import registry
from attent.cli.options import AUTO, Device, RunFolder, TrustCode, Weights, device_of
from attent.cli.output import say
from attent.devices import limit_threads
from attent.errors import ArgumentError, refuse

if TYPE_CHECKING:
    from attent.experiments.report import Report

bench = typer.Typer(help="Measure speed and memory on this machine, beside plain PyTorch.", rich_markup_mode=None)

Json = Annotated[bool, typer.Option("--json", help="Print values as JSON.")]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="How many of the processor's cores to use; those that torch takes unless given."),
]
SCORES, SHAPES = ("scaled_dot", "additive"), ("1,4,512,64",)
ModelKind = StrEnum("ModelKind", ("transformer", "rnn"))
DType = StrEnum("DType", ("float32", "bfloat16", "float16"))


@bench.callback(invoke_without_command=True)
def measurements(
    context: typer.Context,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Measure which attention is faster on this machine, and decide by that from now on."
        ),
    ] = False,
) -> None:
    """Measure speed and memory on this machine, beside plain PyTorch: both sides in turn, after a warm-up.

    A table goes to standard output, in Markdown; what is being measured to standard error. --calibrate takes about half
    a minute; its choice is a small file, whose path it prints.
    """
    refuse((calibrate and context.invoked_subcommand is not None, "--calibrate stands alone: attent bench --calibrate"))
    if calibrate:
        from attent.experiments.calibration import calibrate as calibrate_machine

        show(calibrate_machine(say=say), as_json=False)
    elif context.invoked_subcommand is None:
        print(context.get_help())


@bench.command()
def attention(
    score: Annotated[
        list[str] | None, typer.Option(help="By name; may be repeated. scaled_dot and additive unless given.")
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="B,H,T,D", help="Sequences, heads, tokens, features of a head; may be repeated."),
    ] = None,
    dtype: Annotated[DType, typer.Option(help="Of queries, keys and values.")] = DType.float32,
    causal: Annotated[bool, typer.Option("--causal", help="No query sees a later key.")] = False,
    dropout: Annotated[float, typer.Option(min=0.0, max=0.99, help="The share of weights dropped.")] = 0.0,
    threads: Threads = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each side is timed at most.")] = 15,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="No new round begins after so long, the third excepted.")
    ] = 3.0,
    memory: Annotated[
        bool, typer.Option("--memory/--no-memory", help="Whether to measure memory, in a process for each side.")
    ] = True,
    device: Device = AUTO,
    as_json: Json = False,
) -> None:
    """attend() beside PyTorch's scaled_dot_product_attention, or the textbook line of a score that PyTorch lacks.

    The implementation that served stands behind attent's name. Times are milliseconds, the least and the middle of all;
    memory is what forward and backward make a fresh process grow by; the last column is how far the two results lie
    apart.
    """
    for name in score or ():
        registry.check("score", name)
    from attent.experiments.bench_attention import Case, compare, parse_shape

    shapes = [parse_shape(text) for text in shape or SHAPES]
    torch_device = device_of(device)
    with limit_threads(threads):
        cases = [
            Case(name, sizes, dtype.name, causal, dropout, torch_device) for name in score or SCORES for sizes in shapes
        ]
        show(compare(cases, rounds=rounds, seconds=seconds, memory=memory, say=say), as_json=as_json)


@bench.command()
def train(
    data: Annotated[
        Path | None,
        typer.Option(help="Multi30k's folder, or pairs in a .tsv or .jsonl, also .gz; made-up sentences unless given."),
    ] = None,
    model: Annotated[
        ModelKind, typer.Option(help="transformer, or rnn: recurrent layers with Bahdanau's attention.")
    ] = ModelKind.transformer,
    preset: Annotated[str | None, typer.Option(help="Of a transformer: tiny (unless given), small or base.")] = None,
    pieces: Annotated[int, typer.Option(min=5, help="Tokens in the vocabulary.")] = 10_000,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Target tokens of a batch, padding included.")] = 4096,
    threads: Annotated[
        list[int] | None, typer.Option(min=1, help="May be repeated; on a CPU 1 and all unless given.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds that count; one more warms up.")] = 3,
    updates: Annotated[int, typer.Option(min=1, help="Of each side in a round.")] = 5,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Measure PyTorch under torch.compile too, which takes minutes.")
    ] = False,
    device: Device = AUTO,
    as_json: Json = False,
) -> None:
    """Training, in source and target tokens a second, beside plain PyTorch in a loop with batches of like lengths.

    Ours is the loop of attent train. Both learn from the same batches, in float32 and in bfloat16.
    """
    is_rnn = model is ModelKind.rnn
    refuse(
        (is_rnn and preset is not None, "--preset is for --model transformer"),
        (
            is_rnn and compiled,
            "--compile is for --model transformer; a loop over the words of a sentence takes too long to compile",
        ),
    )
    import torch

    from attent.experiments import bench_training, corpora

    torch_device, all_threads = device_of(device), torch.get_num_threads()
    settings = bench_training.rnn() if is_rnn else bench_training.transformer(preset or "tiny")
    say(f"reading {data}" if data else "making up sentences")
    pairs, tokenizer, name = corpora.load_pairs(data, pieces)
    report = bench_training.compare(
        settings,
        corpora.bitext(pairs, tokenizer),
        pieces,
        name,
        tokens=batch_tokens,
        rounds=rounds,
        updates=updates,
        threads=sorted(set(threads or ((1, all_threads) if torch_device.type == "cpu" else (all_threads,)))),
        compiled=compiled,
        device=torch_device,
        say=say,
    )
    show(report, as_json=as_json)


@bench.command()
def translate(
    run: RunFolder,
    file: Annotated[Path, typer.Argument(help="Lines to translate, also .gz.")],
    lines: Annotated[int, typer.Option(min=1, help="How many of them.")] = 1000,
    single_lines: Annotated[
        int, typer.Option("--alone", min=0, help="How many are also translated one at a time.")
    ] = 100,
    rounds: Annotated[int, typer.Option(min=1, help="Of which the fastest counts.")] = 3,
    threads: Threads = None,
    dtype: Weights = None,
    device: Device = AUTO,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Translation by our own engine and by each that the run was exported to.

    Lines a second by batch, and how long one line takes. Our own computes on --device, the others on the CPU.

    Greedily and with a beam of 5; of one line at a time, the middle of all times and what 95 of 100 lines stay below.
    """
    from attent.experiments.bench_translation import compare
    from attent.text.readers import read_lines

    torch_device = device_of(device)
    texts = list(islice((line for line in read_lines(file) if line), lines))
    if not texts:
        raise ArgumentError(f"{file} has no line to translate")
    with limit_threads(threads):
        report = compare(
            run,
            texts,
            rounds=rounds,
            single_lines=single_lines,
            device=torch_device,
            trust_code=trust_code,
            dtype=None if dtype is None else dtype.value,
            say=say,
        )
        show(report, as_json=as_json)


@bench.command()
def generate(
    run: RunFolder,
    tokens: Annotated[int, typer.Option("--max-new-tokens", min=1, help="Tokens of each text.")] = 64,
    batch: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Texts written side by side; may be repeated. 1, 8 and 32 unless given."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Of which the fastest counts.")] = 3,
    threads: Threads = None,
    dtype: Weights = None,
    device: Device = AUTO,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Text generation by a language model, in new tokens a second.

    Greedily, each text from its beginning and as long as asked for. Ours with its compiled step and by its modules,
    which both keep keys and values; plain PyTorch, which reads all of the text again for each token; and, where
    transformers is installed, its GPT-2, which keeps them. The peers have the model's sizes and untrained weights.
    """
    from attent.experiments.bench_generation import BATCH_SIZES, compare

    torch_device = device_of(device)
    with limit_threads(threads):
        sizes = batch or BATCH_SIZES
        report = compare(
            run,
            tokens=tokens,
            sizes=sizes,
            rounds=rounds,
            device=torch_device,
            trust_code=trust_code,
            dtype=None if dtype is None else dtype.value,
            say=say,
        )
        show(report, as_json=as_json)


def show(report: Report, *, as_json: bool) -> None:
    """Print a report, for people or for machines."""
    print(json.dumps(report.values(), indent=2, ensure_ascii=False) if as_json else "\n".join(report.lines()).lstrip())
