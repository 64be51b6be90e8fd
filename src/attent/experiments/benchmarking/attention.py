"""attend() beside plain PyTorch: time, memory, which implementation served, and how far the two results lie apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attent.attention import attend, choices, explain
from attent.attention.base import Score
from attent.devices import synchronize
from attent.errors import ShapeError
from attent.experiments.benchmarking.machine import CPU, machine, physical
from attent.experiments.benchmarking.memory import apart, grown
from attent.experiments.benchmarking.plain.attention import fused, scale_of, textbook
from attent.experiments.benchmarking.report import Column, Report, Row, Table, three_digits
from attent.experiments.benchmarking.timing import Times, Work, timed

Shape = tuple[int, int, int, int]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
OURS, FUSED, TEXTBOOK = "attent", "scaled_dot_product_attention", "textbook"
# Of the textbook's tensors with a number for every pair and feature: those alive together, and the share of memory they may take.
TENSORS, SHARE = 4, 0.5
# Where a system does not tell how much memory it has, in MiB.
ASSUMED = 8192
SEED, WARM = 1, 16


@dataclass(frozen=True)
class Case:
    """What is computed.

    Args:
        score: its name.
        shape: (B, H, T, D) of queries, keys and values alike.
        dtype: of DTYPES.
        causal: whether a query sees no later key.
        dropout: the share of weights dropped.
        device: where it is computed.
    """

    score: str
    shape: Shape
    dtype: str = "float32"
    causal: bool = False
    dropout: float = 0.0
    device: torch.device = CPU

    def __str__(self) -> str:
        """The shape, and what else is not as usual."""
        more = (["causal"] if self.causal else []) + ([f"dropout {self.dropout:g}"] if self.dropout else [])
        return " ".join([str(self.shape), self.dtype, *more])

    def built(self) -> Score:
        """The score, with parameters for these widths where it has any.

        Raises:
            UnknownNameError, ArgumentError: there is no such score, or it cannot be built for these widths.
        """
        return choices.score_for(self.score, self.shape[3], self.shape[3], self.shape[1]).to(self.device, DTYPES[self.dtype])


class Sides:
    """The two sides of a case, on the same queries, keys and values.

    Args:
        case: what is computed.

    Raises:
        UnknownNameError, ArgumentError: there is no such score, or it cannot be built for these widths.
    """

    def __init__(self, case: Case) -> None:
        B, H, T, D = case.shape
        torch.manual_seed(0)
        of = {"dtype": DTYPES[case.dtype], "device": case.device}
        self.case, self.score = case, case.built()
        self.inputs = [torch.randn(B, H, T, D, **of).requires_grad_() for _ in range(3)]
        self.up = torch.randn(B, H, T, D, **of)
        scale = scale_of(self.score, D)
        self.other = TEXTBOOK if scale is None else FUSED
        how = {"causal": case.causal, "dropout": case.dropout}
        # how our own arguments say the same
        self.how = {"mask": "causal" if case.causal else None, "dropout": case.dropout, "seed": SEED if case.dropout else None}
        self.forward: dict[str, Callable[[], Tensor]] = {
            OURS: partial(attend, *self.inputs, score=self.score, **self.how),
            self.other: partial(textbook, *self.inputs, self.score, **how) if scale is None else partial(fused, *self.inputs, scale, **how),
        }

    def backward(self, name: str) -> Work:
        """Forward and the gradients of every input and parameter."""
        every = [*self.inputs, *self.score.parameters()]
        # a score of places uses no key
        return lambda: torch.autograd.grad(self.forward[name](), every, self.up, allow_unused=True)

    def served(self) -> str:
        """Which implementation of ours serves; two where it is another with gradients."""
        with torch.no_grad():
            once = explain(*self.inputs, score=self.score, **self.how).chosen
        twice = explain(*self.inputs, score=self.score, **self.how).chosen
        return once if once == twice else f"{once}, with gradients {twice}"

    @torch.no_grad()
    def difference(self) -> float | None:
        """How far the two results lie apart at most; None with dropout, for each drops other weights."""
        return None if self.case.dropout else (self.forward[OURS]() - self.forward[self.other]()).abs().max().item()

    def too_large(self) -> float | None:
        """The MiB that the textbook's tensors would take together, if that is too much for this machine."""
        B, H, T, D = self.case.shape
        size = TENSORS * B * H * T**2 * self.score.per_pair(D) * self.up.itemsize / 2**20
        return size if self.other == TEXTBOOK and size > SHARE * (physical(self.case.device) or ASSUMED) else None


def held(case: Case, name: str, threads: int) -> float | None:
    """The MiB by which a side's forward and backward make a process grow; to be called in a process of its own."""
    torch.set_num_threads(threads)
    # what the first call of all brings with it is not of this shape
    Sides(replace(case, shape=(1, case.shape[1], WARM, case.shape[3]))).backward(name)()
    return grown(Sides(case).backward(name), case.device)


COLUMNS = (
    Column("score", "score"),
    Column("case", "(B, H, T, D)"),
    Column("side", ""),
    Column("forward", "forward, ms", three_digits),
    Column("forward, median", "median", three_digits),
    Column("backward", "forward + backward, ms", three_digits),
    Column("backward, median", "median", three_digits),
    Column("times", "× attent", ".2f"),
    Column("memory", "memory, MiB", ",.0f"),
    Column("difference", "largest difference", ".1e"),
)


def measure(case: Case, *, rounds: int, seconds: float, memory: bool = True) -> tuple[list[Row], list[str]]:
    """A row for each side of a case, and what else is to be known.

    Args:
        case: what is computed.
        rounds: how often each side is timed at most, forward, and forward and backward.
        seconds: no new round begins after so long, the third excepted.
        memory: whether each side is also run in a process of its own, to see how much memory it takes.

    Raises:
        UnknownNameError, ArgumentError: there is no such score, or it cannot be built for these widths.
    """
    sides, notes = Sides(case), []
    names = [OURS, sides.other]
    if (size := sides.too_large()) is not None:
        names.remove(sides.other)
        notes.append(f"{case.score} {case}: the textbook line is left out, for its tensors would take {size:,.0f} MiB.")
    how: dict[str, Any] = {"rounds": rounds, "seconds": seconds, "wait": partial(synchronize, case.device)}
    with torch.no_grad():
        once = timed({name: sides.forward[name] for name in names}, **how)
    twice = timed({name: sides.backward(name) for name in names}, **how)
    rows: list[Row] = []
    for name in names:
        title = f"{OURS} ({sides.served()})" if name == OURS else name
        found = apart(held, case, name, torch.get_num_threads()) if memory else None
        more: Row = {"memory": found, "difference": None if name == OURS else sides.difference()}
        rows.append({"score": case.score, "case": str(case), "side": title} | _times(once[name], twice[name], twice[OURS]) | more)
    return rows, notes


def _times(once: Times, twice: Times, ours: Times) -> Row:
    return {
        "forward": once.best,
        "forward, median": once.median,
        "backward": twice.best,
        "backward, median": twice.median,
        "times": twice.best / ours.best,
    }


def compare(
    cases: Sequence[Case], *, rounds: int = 15, seconds: float = 3.0, memory: bool = True, say: Callable[[str], None] = lambda line: None
) -> Report:
    """Measure attention, ours beside plain PyTorch's, one case after another; `say` is told which. Otherwise as `measure`."""
    rows: list[Row] = []
    notes: list[str] = []
    for case in cases:
        case.built()
    for case in cases:
        say(f"{case.score} {case}")
        some, said = measure(case, rounds=rounds, seconds=seconds, memory=memory)
        rows += some
        notes += said
    return Report("Attention beside plain PyTorch", machine(cases[0].device if cases else CPU), [Table("", COLUMNS, rows)], notes)


def shape(text: str) -> Shape:
    """The shape that "B,H,T,D" says.

    Raises:
        ShapeError: it is not four whole numbers above 0.
    """
    try:
        B, H, T, D = (int(number) for number in text.split(","))
    except ValueError:
        B = H = T = D = 0
    if min(B, H, T, D) < 1:
        raise ShapeError(f"a shape is B,H,T,D, four whole numbers above 0 such as 1,8,1024,64, got {text!r}")
    return B, H, T, D
