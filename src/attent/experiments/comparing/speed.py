"""How long a step of training takes with the length of the sequences: one state after another, or all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from attent.experiments.benchmarking.timing import milliseconds
from attent.experiments.comparing.results import Figure, Point, Series
from attent.experiments.comparing.settings import TITLES, model
from attent.models.settings import build
from attent.tasks.settings import RunSettings

LENGTHS = (16, 32, 64, 128, 256, 512)
# Target tokens of a batch, however long its sequences are.
TOKENS, VOCABULARY = 2048, 64
COMPARED = ("bahdanau", "transformer")


def step(name: str, length: int, tokens: int = TOKENS) -> Callable[[], object]:
    """A step of training of a model by its name: forward, loss and backward, sources and targets of so many tokens."""
    settings = RunSettings.model_validate({"model": model(name), "training": {"updates": 1, "batch_pairs": 1}}).model
    made = build(settings, VOCABULARY, VOCABULARY).train()
    rows = max(tokens // length, 1)
    source, target = (torch.randint(4, VOCABULARY, (rows, length)) for _ in range(2))
    lengths = torch.full((rows,), length)

    def work() -> None:
        logits = made.output(made.decode(made.encode(source, lengths), target))
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()
        for parameter in made.parameters():
            parameter.grad = None

    return work


def measure(lengths: Sequence[int] = LENGTHS, *, rounds: int = 5, seconds: float = 2.0, tokens: int = TOKENS) -> Figure:
    """Milliseconds of a step of both models at each length, the two in turn."""
    found: dict[str, list[Point]] = {name: [] for name in COMPARED}
    for length in lengths:
        times = milliseconds({name: step(name, length, tokens) for name in COMPARED}, rounds=rounds, seconds=seconds)
        for name, points in found.items():
            points.append(Point(float(length), times[name]))
    series = [Series(TITLES[name], points) for name, points in found.items()]
    title = f"A step of training, {tokens:,} tokens a batch on either side"
    return Figure("why-speed", title, "length of source and target, tokens", "milliseconds", series, log_x=True, log_y=True)
