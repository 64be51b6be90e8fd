"""Time and memory of attend() beside PyTorch's scaled_dot_product_attention, or the textbook line for other scores.

    benchmarks/attention.py [--score scaled_dot additive ...] [--shape 1,4,512,64 ...] [--dtype float32] [--causal]
        [--dropout 0.0] [--device cpu] [--rounds 15] [--seconds 3] [--no-memory]

Times are the minimum and the median in milliseconds; memory is the growth of a fresh process by forward and backward;
the last column is the largest difference between the two results. The backend used follows attent's name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from _machine import memory_growth, run_in_process, total_memory
from _plain_pytorch import sdpa, sdpa_scale, textbook_attention
from _report import CPU, Column, Report, ResultTable, Row, machine_info, three_digits
from _sides import show
from calibrate import Work, time_in_turn
from torch import Tensor

from attent.attention import attend, choices, explain
from attent.attention.base import Score
from attent.devices import synchronize
from attent.errors import ShapeError

Shape = tuple[int, int, int, int]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ATTENT, SDPA, TEXTBOOK = "attent", "scaled_dot_product_attention", "textbook"
# Textbook tensors with a number for every pair and feature that exist at the same time.
TENSORS = 4
# Maximum share of memory that they may take.
MAX_SHARE = 0.5
# In MiB, if the system does not report its memory.
ASSUMED_MEMORY = 8192
SEED = 1
# Tokens of the call before memory is measured.
WARM_UP_LENGTH = 16


@dataclass(frozen=True)
class Case:
    """A call of attention to measure.

    Args:
        score: the name of the score.
        shape: the shape (B, H, T, D) of queries, keys and values.
        dtype: the name of one of DTYPES.
        causal: whether later keys are hidden.
        dropout: the share of weights dropped.
        device: the device of the tensors.
    """

    score: str
    shape: Shape
    dtype: str = "float32"
    causal: bool = False
    dropout: float = 0.0
    device: torch.device = CPU

    def __str__(self) -> str:
        """Return the shape, the dtype, and the other settings that differ from their defaults."""
        extras = (["causal"] if self.causal else []) + ([f"dropout {self.dropout:g}"] if self.dropout else [])
        return " ".join([str(self.shape), self.dtype, *extras])

    def build_score(self) -> Score:
        """Build the score, with parameters for these widths if it has any.

        Raises:
            UnknownNameError, ArgumentError: there is no such score, or it cannot be built for these widths.
        """
        return choices.score_for(self.score, self.shape[3], self.shape[3], self.shape[1]).to(
            self.device, DTYPES[self.dtype]
        )


class Sides:
    """The two sides of a case, on the same queries, keys and values.

    Args:
        case: the call to measure. Raises:
        UnknownNameError, ArgumentError: there is no such score, or it cannot be built for these widths.
    """

    def __init__(self, case: Case) -> None:
        torch.manual_seed(0)
        options = {"dtype": DTYPES[case.dtype], "device": case.device}
        self.case, self.score = case, case.build_score()
        self.inputs = [torch.randn(*case.shape, **options).requires_grad_() for _ in range(3)]
        self.grad_output = torch.randn(*case.shape, **options)
        scale = sdpa_scale(self.score, case.shape[3])
        self.peer = TEXTBOOK if scale is None else SDPA
        plain = partial(textbook_attention, score=self.score) if scale is None else partial(sdpa, scale=scale)
        self.arguments = {
            "mask": "causal" if case.causal else None,
            "dropout": case.dropout,
            "seed": SEED if case.dropout else None,
        }
        self.forward: dict[str, Callable[[], Tensor]] = {
            ATTENT: partial(attend, *self.inputs, score=self.score, **self.arguments),
            self.peer: partial(plain, *self.inputs, causal=case.causal, dropout=case.dropout),
        }

    def backward(self, name: str) -> Work:
        """Return the work of a forward and the gradients of every input and parameter."""
        tensors = [*self.inputs, *self.score.parameters()]
        # a score of positions uses no key
        return lambda: torch.autograd.grad(self.forward[name](), tensors, self.grad_output, allow_unused=True)

    def implementation(self) -> str:
        """Return the implementation that attend() chooses, or both if it differs with gradients."""
        with torch.no_grad():
            inference = explain(*self.inputs, score=self.score, **self.arguments).chosen
        training = explain(*self.inputs, score=self.score, **self.arguments).chosen
        return inference if inference == training else f"{inference}, with gradients {training}"

    @torch.no_grad()
    def difference(self) -> float | None:
        """Return the largest difference between the results; None with dropout, which differs between the sides."""
        return None if self.case.dropout else (self.forward[ATTENT]() - self.forward[self.peer]()).abs().max().item()

    def textbook_excess(self) -> float | None:
        """Return the size of the textbook's tensors in MiB if this machine has too little memory for them."""
        B, H, T, D = self.case.shape
        size = TENSORS * B * H * T**2 * self.score.per_pair(D) * self.grad_output.itemsize / 2**20
        return (
            size
            if self.peer == TEXTBOOK and size > MAX_SHARE * (total_memory(self.case.device) or ASSUMED_MEMORY)
            else None
        )


def backward_memory(case: Case, name: str, threads: int) -> float | None:
    """Return by how many MiB forward and backward of a side make the process grow.

    Call it in a separate process.
    """
    torch.set_num_threads(threads)
    # the first call takes memory that does not depend on the shape
    Sides(replace(case, shape=(1, case.shape[1], WARM_UP_LENGTH, case.shape[3]))).backward(name)()
    return memory_growth(Sides(case).backward(name), case.device)


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
    """Measure a case: a row for each side, and notes.

    Args:
        case: the call.
        rounds: the maximum rounds of forward, and of forward and backward.
        seconds: the time after which no new round begins, except up to the third.
        memory: whether to measure each side's memory in a separate process.

    Raises:
        UnknownNameError, ArgumentError: there is no such score, or it cannot be built for these widths.
    """
    sides, notes = Sides(case), list[str]()
    names = [ATTENT, sides.peer]
    if (size := sides.textbook_excess()) is not None:
        names.remove(sides.peer)
        notes.append(f"{case.score} {case}: the textbook line is left out, for its tensors would take {size:,.0f} MiB.")
    options: dict[str, Any] = {"rounds": rounds, "seconds": seconds, "wait": partial(synchronize, case.device)}
    with torch.no_grad():
        forward = time_in_turn({name: sides.forward[name] for name in names}, **options)
    backward = time_in_turn({name: sides.backward(name) for name in names}, **options)
    rows: list[Row] = [
        {
            "score": case.score,
            "case": str(case),
            "side": f"{ATTENT} ({sides.implementation()})" if name == ATTENT else name,
            "forward": forward[name].best,
            "forward, median": forward[name].median,
            "backward": backward[name].best,
            "backward, median": backward[name].median,
            "times": backward[name].best / backward[ATTENT].best,
            "memory": run_in_process(backward_memory, case, name, torch.get_num_threads()) if memory else None,
            "difference": None if name == ATTENT else sides.difference(),
        }
        for name in names
    ]
    return rows, notes


def compare(
    cases: Sequence[Case],
    *,
    rounds: int = 15,
    seconds: float = 3.0,
    memory: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Measure attend() beside plain PyTorch for each case; `say` receives a line for each.

    Other arguments as for `measure`.
    """
    rows: list[Row] = []
    notes: list[str] = []
    for case in cases:
        # raises an error for an unknown score before anything is measured
        case.build_score()
    for case in cases:
        say(f"{case.score} {case}")
        case_rows, case_notes = measure(case, rounds=rounds, seconds=seconds, memory=memory)
        rows += case_rows
        notes += case_notes
    device = cases[0].device if cases else CPU
    return Report("Attention beside plain PyTorch", machine_info(device), [ResultTable("", COLUMNS, rows)], notes)


def parse_shape(text: str) -> Shape:
    """Parse a shape written as B,H,T,D.

    Raises:
        ShapeError: it does not consist of four whole numbers above 0.
    """
    try:
        B, H, T, D = (int(number) for number in text.split(","))
    except ValueError:
        B = H = T = D = 0
    if min(B, H, T, D) < 1:
        raise ShapeError(f"a shape is B,H,T,D, four whole numbers above 0 such as 1,8,1024,64, got {text!r}")
    return B, H, T, D


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--score", nargs="+", default=["scaled_dot", "additive"])
    parser.add_argument("--shape", nargs="+", default=["1,4,512,64"], help="B,H,T,D")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=3.0, help="no new round begins after, except up to the third")
    parser.add_argument("--no-memory", action="store_true")
    options = parser.parse_args()
    device = torch.device(options.device)
    shapes = [parse_shape(text) for text in options.shape]
    cases = [
        Case(score, shape, options.dtype, options.causal, options.dropout, device)
        for score in options.score
        for shape in shapes
    ]
    limits = {"rounds": options.rounds, "seconds": options.seconds, "memory": not options.no_memory}
    show(compare(cases, **limits, say=lambda line: print(line, file=sys.stderr, flush=True)))


if __name__ == "__main__":
    main()
