"""Reasons for attention's design: gradients by distance, step time by length, dot and scaled dot by width, heads.

    benchmarks/why.py [--only gradients speed widths heads] [--out runs/compare-why] [--minutes M] [--updates N]
                      [--seeds 1]

The first two, gradients and speed, are measured without training, in seconds and in about two minutes; the others are
trainings on dates of at most 2 minutes each, resumed after an interruption like those of `scripts/bench compare`.
Tables are printed to standard output and also written to OUT, with figures and JSON: to why.md, or to why-PART.md if
only some parts are measured.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _report import Column, Report, ResultTable, machine_info, three_digits
from _sides import Work, show
from comparison import trainings
from comparison.parts import judge
from comparison.results import Figure, ModelComparison, Point, Series
from comparison.trainings import Options, Say, TrainingPlan
from torch import Tensor, nn

from attent.attention import attend
from attent.attention.capture.watch import watch
from attent.attention.multihead import MultiHeadAttention
from attent.devices import limit_threads
from attent.models.build import build
from attent.models.settings import ModelSettings, RnnSettings, TransformerSettings
from attent.tasks.dates.corpus import HELD_OUT_DATES
from attent.tasks.settings import RunSettings
from attent.text.batches import Sequences
from attent.text.text import Pair
from attent.text.tokenizer import CharTokenizer
from attent.training.progress import Progress

PARTS = ("gradients", "speed", "widths", "heads")
SEEDS = 1
SCORES, WIDTHS, UPDATES_OF_WIDTHS, MINUTES_OF_WIDTHS = ("dot", "scaled_dot"), (16, 32, 64, 128, 256), 600, 2.0
HEADS, UPDATES_OF_HEADS, MINUTES_OF_HEADS = (1, 2, 4, 8), 1500, 2.0
# Sentences whose entropies are measured.
SENTENCES = 64
# Distances in the table of gradients.
DISTANCES = (0, 1, 2, 5, 10, 20, 50, 100)

# Sizes for measuring gradients of layers.
WIDTH, LENGTH, SEQUENCES = 64, 128, 64
# The smallest norm that is drawn.
MIN_NORM = 1e-20

# Models whose steps are timed, at these lengths, in this many rounds.
TIMED_MODELS, LENGTHS, ROUNDS = ("bahdanau", "transformer"), (16, 32, 64, 128, 256, 512, 1024), 15
# Target tokens per batch for every sequence length.
TOKENS, VOCABULARY = 2048, 64

# Numbers of random keys and queries for measuring entropy.
KEYS, QUERIES = 32, 256

Layer = Callable[[Tensor], Tensor]


def compare(options: Options, *, say: Say = print, progress: Progress | None = None) -> ModelComparison:
    """Measure gradients and times, and train Transformers of several widths and numbers of heads on dates.

    Raises:
        ArgumentError: the folder belongs to another comparison.
    """
    parts, seeds = trainings.select("part", options.parts, PARTS), options.seed_range(SEEDS)
    trainings.claim(options.out, "why")
    width_plans = {
        (score, width): [_width_plan(score, width, seed, options) for seed in seeds]
        for score in SCORES
        for width in WIDTHS
        if "widths" in parts
    }
    head_plans = {heads: [_head_plan(heads, seed, options) for seed in seeds] for heads in HEADS if "heads" in parts}
    plans = [plan for by_seed in (*width_plans.values(), *head_plans.values()) for plan in by_seed]
    if plans:
        trainings.train(plans, options.out, say=say, progress=progress)
    results = {
        "gradients": lambda: _compare_gradients(say),
        "speed": lambda: _compare_speed(say),
        "widths": lambda: _compare_widths(width_plans, options),
        "heads": lambda: _compare_heads(head_plans, options, say),
    }
    notes = {
        "gradients": "Gradients are those of layers before any training.",
        "widths": f"Entropies are those of layers before any training; {math.log(KEYS):.2f} nats is the entropy of a "
        f"query that looks at {KEYS} keys alike.",
    }
    said = [f"Seeds {', '.join(map(str, seeds))}."] * bool(plans) + [notes[part] for part in parts if part in notes]
    with limit_threads(None if plans else 1):
        tables, figures = zip(*(results[part]() for part in parts), strict=True)
        report = Report("Why", machine_info(), tables, [" ".join(said)] if said else [])
    name = "why" if len(parts) == len(PARTS) else "-".join(("why", *parts))
    return ModelComparison(name, report, figures)


def _compare_gradients(say: Say) -> tuple[ResultTable, Figure]:
    """Return the gradient of the last output by distance."""
    say("measuring gradients by distance")
    torch.manual_seed(0)
    norms = {name: gradient_norms(layer).tolist() for name, layer in layers().items()}
    rows = [{"x": f"{x:g}"} | {name: f"{of_layer[x]:.2g}" for name, of_layer in norms.items()} for x in DISTANCES]
    columns = [Column("x", "distance, steps"), *(Column(name, name) for name in norms)]
    return ResultTable("Gradient of the last output by distance", columns, rows), gradient_figure(norms)


def _compare_speed(say: Say) -> tuple[ResultTable, Figure]:
    """Return the processor time of a training step by length, and the number of steps that wait for each other."""
    say("measuring the time of a step by length")
    times = step_times()
    columns = [Column("length", "length, tokens", "d")]
    columns += [Column(f"steps_{name}", f"{trainings.TITLES[name]}: steps in a row", ",d") for name in TIMED_MODELS]
    columns += [Column(name, f"{trainings.TITLES[name]}, ms [middle half]") for name in TIMED_MODELS]
    columns += [Column("ratio", f"{' / '.join(trainings.TITLES[name] for name in TIMED_MODELS)} [middle half]")]
    rows: list[dict[str, Any]] = []
    points: dict[str, list[Point]] = {name: [] for name in TIMED_MODELS}
    for length, by_model in times.items():
        first, second = (np.array(by_model[name]) for name in TIMED_MODELS)
        row: dict[str, Any] = {"length": length, "ratio": _median_and_half(first / second, "{:.2f}".format)}
        for name, line in points.items():
            low, median, high = np.percentile(by_model[name], (25, 50, 75)).tolist()
            line.append(Point(float(length), median, low, high))
            row |= {f"steps_{name}": steps_in_a_row(name, length), name: _median_and_half(by_model[name], three_digits)}
            row[f"{name}_milliseconds"] = by_model[name]
        rows.append(row)
    rounds = len(rows[0][f"{TIMED_MODELS[0]}_milliseconds"])
    title = f"Processor time of a step of training on one thread, {TOKENS:,} tokens a batch on either side"
    series = [Series(trainings.TITLES[name], line) for name, line in points.items()]
    figure = Figure(
        "why-speed",
        f"{title}: median and middle half of {rounds} rounds",
        "length of source and target, tokens",
        "milliseconds",
        series,
        log_x=True,
        log_y=True,
    )
    return ResultTable(f"{title}, median of {rounds} rounds in which the models alternate", columns, rows), figure


def _median_and_half(values: Sequence[float] | np.ndarray, form: Callable[[float], str]) -> str:
    """Return the median and the quartiles on either side of it as text."""
    low, median, high = (form(value) for value in np.percentile(values, (25, 50, 75)).tolist())
    return f"{median} [{low}, {high}]"


def _width_plan(score: str, width: int, seed: int, options: Options) -> TrainingPlan:
    model = {**trainings.TRANSFORMER, "score": score, "width": width, "feed_forward": 2 * width, "heads": 1}
    limits = {"updates": UPDATES_OF_WIDTHS, "minutes": MINUTES_OF_WIDTHS}
    return trainings.plan_on_dates(f"widths/{score}-{width}-{seed}", model, seed, options, **limits)


def _head_plan(heads: int, seed: int, options: Options) -> TrainingPlan:
    model = {**trainings.TRANSFORMER, "heads": heads}
    return trainings.plan_on_dates(
        f"heads/{heads}-{seed}", model, seed, options, updates=UPDATES_OF_HEADS, minutes=MINUTES_OF_HEADS
    )


def _compare_widths(plans: dict[tuple[str, int], list[TrainingPlan]], options: Options) -> tuple[ResultTable, Figure]:
    """Return loss and entropy by score and width."""
    rows: list[dict[str, Any]] = []
    points: dict[str, list[Point]] = {score: [] for score in SCORES}
    for (score, width), by_seed in plans.items():
        outcomes = [trainings.outcome(plan, options.out) for plan in by_seed]
        losses, settings = [outcome.loss for outcome in outcomes], by_seed[0].settings
        row = {
            "score": score,
            "width": width,
            "loss": float(np.mean(losses)),
            "losses": losses,
            "updates": float(np.mean([outcome.updates for outcome in outcomes])),
            "entropy_random": random_entropy(score, width),
            "gradient_random": random_gradient(score, width),
            "entropy_model": model_entropy(
                settings.model, trainings.dates_corpus(settings.dates).validation[:SENTENCES]
            ),
        }
        rows.append(row)
        points[score].append(Point(float(width), row["loss"], by_seed=tuple(losses)))
    columns = [
        Column("score", "score"),
        Column("width", "Dk", "d"),
        Column("entropy_random", f"entropy, random queries and {KEYS} keys, nats", ".2f"),
        Column("gradient_random", f"gradient of a random query over {KEYS} keys, median norm", ".3f"),
        Column("entropy_model", "entropy, first layer before training, nats", ".2f"),
        Column("loss", "loss after training, nats/token", ".4f"),
        Column("updates", "updates", ",.0f"),
    ]
    title = "Loss on dates after the same training, one head as wide as the model"
    series = [Series(score, points[score]) for score in SCORES]
    figure = Figure("why-widths", title, "width Dk", "validation loss, nats per token", series, log_x=True, log_y=True)
    return ResultTable("Dot and scaled dot product by width", columns, rows), figure


def _compare_heads(plans: dict[int, list[TrainingPlan]], options: Options, say: Say) -> tuple[ResultTable, Figure]:
    """Return exact match by the number of heads."""
    rows: list[dict[str, Any]] = []
    points: list[Point] = []
    for heads, by_seed in plans.items():
        pairs = trainings.dates_corpus(by_seed[0].settings.dates).held_out[HELD_OUT_DATES]
        score = judge(by_seed, pairs, HELD_OUT_DATES, options, say)
        points.append(Point(str(heads), *score))
        outcomes = [trainings.outcome(plan, options.out) for plan in by_seed]
        row = {
            "heads": str(heads),
            "score": str(score),
            "values": score._asdict(),
            "parameters": outcomes[0].parameters,
        }
        rows.append(
            row
            | {
                key: float(np.mean([getattr(o, key) for o in outcomes]))
                for key in ("updates", "loss", "tokens_per_second")
            }
        )
    columns = [
        Column("heads", "heads"),
        Column("score", "exact match on held-out dates [95 %]"),
        Column("loss", "loss, nats/token", ".4f"),
        Column("parameters", "parameters", ",.0f"),
        Column("updates", "updates", ",.0f"),
        Column("tokens_per_second", "tokens/s", ",.0f"),
    ]
    title = f"Heads of a Transformer of width {trainings.TRANSFORMER['width']} on dates"
    return ResultTable(title, columns, rows), Figure(
        "why-heads", title, "heads", "exact match, per cent", [Series("", points)], kind="dots"
    )


def layers(width: int = WIDTH) -> dict[str, Layer]:
    """Return untrained layers (B, T, width) → (B, T, width) in float64.

    They are PyTorch's three recurrent layers, an LSTM whose forget gates start with a bias of 1 (Gers, Schmidhuber and
    Cummins 2000, "Learning to Forget"), and causal attention.
    """
    recurrent: dict[str, nn.RNNBase] = {
        "tanh RNN": nn.RNN(width, width, batch_first=True),
        "GRU": nn.GRU(width, width, batch_first=True),
        "LSTM": nn.LSTM(width, width, batch_first=True),
        "LSTM, forget bias 1": nn.LSTM(width, width, batch_first=True),
    }
    with torch.no_grad():
        # gates in the order input, forget, cell, output; two biases are added
        for name, value in (("bias_ih_l0", 1.0), ("bias_hh_l0", 0.0)):
            recurrent["LSTM, forget bias 1"].get_parameter(name)[width : 2 * width] = value
    attention = MultiHeadAttention(width, 1).double()
    by_name: dict[str, Layer] = {
        name: lambda inputs, rnn=rnn: rnn.double()(inputs)[0] for name, rnn in recurrent.items()
    }
    return by_name | {"attention, causal": lambda inputs: attention(inputs, mask="causal")}


def gradient_norms(layer: Layer, *, width: int = WIDTH, length: int = LENGTH, sequences: int = SEQUENCES) -> Tensor:
    """Return ‖∂(u·y_T)/∂x_{T−d}‖ by distance d, (length,).

    It is the mean over random inputs x and random directions u of length 1. See Bengio, Simard and Frasconi 1994,
    "Learning Long-Term Dependencies with Gradient Descent is Difficult", and Pascanu, Mikolov and Bengio 2013, §2
    (arXiv:1211.5063).
    """
    inputs = torch.randn(sequences, length, width, dtype=torch.float64, requires_grad=True)
    direction = nn.functional.normalize(torch.randn(sequences, width, dtype=torch.float64), dim=-1)
    (gradient,) = torch.autograd.grad((layer(inputs)[:, -1] * direction).sum(), inputs)
    return gradient.norm(dim=-1).mean(0).flip(0)


def gradient_figure(norms: Mapping[str, Sequence[float]]) -> Figure:
    """Draw how much of the last output's gradient reaches earlier inputs, through every kind of layer."""
    series = [
        Series(name, [Point(float(distance), norm) for distance, norm in enumerate(of_layer) if norm > MIN_NORM])
        for name, of_layer in norms.items()
    ]
    return Figure(
        "why-gradients",
        f"Gradient of the last output of one untrained layer, width {WIDTH}, {SEQUENCES} random sequences",
        "distance of the input, steps",
        "norm of the gradient",
        series,
        log_y=True,
    )


def _timed_settings(name: str) -> ModelSettings:
    table = {"model": trainings.model_settings(name), "training": {"updates": 1, "batch_pairs": 1}}
    return RunSettings.model_validate(table).model


def training_step(name: str, length: int, tokens: int = TOKENS) -> Callable[[], object]:
    """Return a training step of the named model.

    It consists of forward, loss and backward on a batch with `tokens` target tokens.
    """
    model = build(_timed_settings(name), VOCABULARY, VOCABULARY).train()
    rows = max(tokens // length, 1)
    source, target = (torch.randint(4, VOCABULARY, (rows, length)) for _ in range(2))
    lengths = torch.full((rows,), length)

    def work() -> None:
        logits = model.output(model.decode(model.encode(source, lengths), target))
        nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()
        for parameter in model.parameters():
            parameter.grad = None

    return work


def steps_in_a_row(name: str, length: int) -> int:
    """Return the number of steps of the named model in training that must wait for one another.

    A recurrent layer has one for each token, in the encoder (both directions at once) and then in the decoder; a layer
    of a Transformer computes all tokens in one step.
    """
    settings = _timed_settings(name)
    if isinstance(settings, RnnSettings):
        return (settings.encoder_layers + settings.decoder_layers) * length
    assert isinstance(settings, TransformerSettings)
    return settings.encoder_layers + settings.decoder_layers


def step_times(
    lengths: Sequence[int] = LENGTHS, *, rounds: int = ROUNDS, tokens: int = TOKENS
) -> dict[int, dict[str, list[float]]]:
    """Return the milliseconds of a training step on one thread, by length and model: one for each round.

    They are processor time, which does not count the work of other processes.
    """
    with limit_threads(1):
        return {
            length: alternate({name: training_step(name, length, tokens) for name in TIMED_MODELS}, rounds)
            for length in lengths
        }


def alternate(sides: Mapping[str, Work], rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of processor time of each side in each round, in which the sides take turns.

    In its turn, a side runs twice, and the first run does not count.
    """
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, work in sides.items():
            work()
            begin = time.process_time()
            work()
            times[name].append(1000 * (time.process_time() - begin))
    return times


def random_entropy(score: str, width: int, seed: int = 0) -> float:
    """Return the mean entropy in nats of a query over KEYS keys, at most log KEYS.

    Queries and keys have independent features of variance 1, so q·k has variance Dk (Vaswani et al. 2017, §3.2.1,
    footnote 4, arXiv:1706.03762).
    """
    generator = torch.Generator().manual_seed(seed)
    query, key = (torch.randn(1, count, width, generator=generator) for count in (QUERIES, KEYS))
    return float(attend(query, key, key, score=score, return_map=True)[1].entropy().mean())


def random_gradient(score: str, width: int, seed: int = 0) -> float:
    """Return the median of ‖∂(u·z)/∂q‖ over random queries q with KEYS keys and values.

    z are the contexts, u directions of length 1. A saturated softmax passes no gradient back (Vaswani et al. 2017,
    §3.2.1, arXiv:1706.03762).
    """
    generator = torch.Generator().manual_seed(seed)
    query, direction = (torch.randn(1, QUERIES, width, generator=generator) for _ in range(2))
    key, value = (torch.randn(1, KEYS, width, generator=generator) for _ in range(2))
    answer = attend(query.requires_grad_(), key, value, score=score)
    (gradient,) = torch.autograd.grad((answer * nn.functional.normalize(direction, dim=-1)).sum(), query)
    return float(gradient.norm(dim=-1).median())


def model_entropy(settings: ModelSettings, pairs: Sequence[Pair], seed: int = 1) -> float:
    """Return the mean entropy in nats of an untrained Transformer's first layer over the sources.

    Each token of a source is a query.
    """
    tokenizer = CharTokenizer.learn(pair.source for pair in pairs)
    sequences = Sequences([tokenizer.encode(pair.source) for pair in pairs])
    source = torch.from_numpy(sequences.pad(np.arange(len(pairs))))
    lengths = torch.from_numpy(sequences.lengths)
    torch.manual_seed(seed)
    model = build(settings, tokenizer.size, tokenizer.size).eval()
    with torch.no_grad(), watch(model) as maps:
        model.encode(source, lengths)
    entropy = maps["encoder.layers.0.self_attention"].entropy().mean(1)  # (B, T)
    return float(entropy[torch.arange(source.shape[1]) < lengths[:, None]].mean())


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/compare-why"))
    parser.add_argument("--minutes", type=float, help="the most that each training takes")
    parser.add_argument("--updates", type=int, help="of each training")
    parser.add_argument("--seeds", type=int, help="trainings of each model")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="measure only these parts")
    options = parser.parse_args()
    limits = Options(
        options.out, minutes=options.minutes, updates=options.updates, seeds=options.seeds, parts=options.only
    )
    comparison = compare(limits, say=lambda line: print(line, file=sys.stderr, flush=True))
    command = shlex.join(["scripts/bench", "why", *sys.argv[1:]])
    comparison = replace(comparison, report=replace(comparison.report, command=command))
    comparison.write(options.out)
    show(comparison.report)


if __name__ == "__main__":
    main()
