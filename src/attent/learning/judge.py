"""Judgment of a function: each case against the correct results, and the usual mistake that has the same results."""

import copy
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attent.errors import ArgumentError, brief, printable, refuse, shortened
from attent.learning.exercise import exercise
from attent.testing import check_part
from attent.views.panel import Panel, head_panels, panel
from attent.views.terminal import heat_map

# Results in float32 are right up to this share, and this much next to 0.
SHARE, MARGIN = 1e-4, 1e-5
# The results of a function, or the error that prevents them.
Outcome = tuple[Any, ...] | str


class Judgment(NamedTuple):
    """Judgment of a function, which prints what is right and what is not.

    Args:
        findings: for each case the number that is wrong; an empty text if it is right.
        reason: the usual mistake that explains the findings; an empty text if none is recognized.
        panels: what a correct function draws, by name.
    """

    findings: Mapping[str, str]
    reason: str
    panels: Mapping[str, Panel]

    @property
    def is_right(self) -> bool:
        """True if every case is right."""
        return not any(self.findings.values())

    def __repr__(self) -> str:
        lines = [f"wrong  {name}: {wrong}" if wrong else f"right  {name}" for name, wrong in self.findings.items()]
        return "\n\n".join(filter(None, ("\n".join(lines), self.reason, heat_map(self.panels))))


def check_file(number: int, path: Path) -> Judgment:
    """Run a file and check its function against an exercise; an endless loop ends with Ctrl-C.

    Raises:
        ArgumentError: there is no such exercise, the file cannot be run, or it has no function of that name.
    """
    name = exercise(number)["function"]
    refuse((not path.exists(), f"there is no {path}: attent learn {number} writes it"))
    try:
        function: Any = runpy.run_path(str(path)).get(name)
    except (Exception, SystemExit) as error:
        raise ArgumentError(f"{path} raises {type(error).__name__}: {error}") from error
    refuse((not callable(function), f"{path} has no function {name}"))
    return check(number, function)


def check(number: int, function: Callable[..., Any]) -> Judgment:
    """Check a function against an exercise.

    Args:
        number: the number of the exercise, from 1.
        function: the function that the exercise asks for.

    Raises:
        ArgumentError: there is no such exercise.
    """
    chosen, names = exercise(number), dict[str, Any]()
    exec(chosen["reference"], names)
    cases = {name: _inputs(code, names) for name, code in chosen["cases"].items()}
    outcomes = {name: _outcome(function, inputs) for name, inputs in cases.items()}
    expected = {name: _outcome(names["reference"], inputs) for name, inputs in cases.items()}
    findings = {name: _difference(chosen, expected[name], outcomes[name]) for name in cases}
    if wrong := next((name for name in cases if findings[name]), ""):
        return Judgment(findings, _reason(chosen, cases, outcomes, wrong), {})
    if "part" in names:
        fault = _outcome(lambda: check_part(names["part"](function)), ())
        findings["as a part of attention"] = fault if isinstance(fault, str) else ""
    return Judgment(findings, "", {} if any(findings.values()) else _panels(chosen["picture"], function, names))


def _inputs(code: str, names: dict[str, Any]) -> tuple[Any, ...]:
    """Return the inputs that an exercise writes as code; what is random is always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return eval(f"({code},)", names)


@torch.no_grad()
def _outcome(function: Callable[..., Any], inputs: tuple[Any, ...]) -> Outcome:
    """Return the results of a function, numbers as tensors, or its error."""
    try:
        results = function(*copy.deepcopy(inputs))
    except (Exception, SystemExit) as error:
        return shortened(printable(f"{type(error).__name__}: {' '.join(str(error).split())}"))
    return tuple(
        torch.tensor(result) if isinstance(result, int | float) else result
        for result in (results if isinstance(results, tuple) else (results,))
    )


def _kinds(results: tuple[Any, ...]) -> str:
    """Return the kinds of results: the shapes of tensors, and the types of others."""
    return ", ".join(
        (f"tensor {(*x.shape,)}" if x.dim() else "number") if isinstance(x, Tensor) else type(x).__name__
        for x in results
    )


def _difference(chosen: Mapping[str, Any], expected: Outcome, outcome: Outcome) -> str:
    """Return the first difference from the expected results; an empty text if there is none."""
    if isinstance(outcome, str) or isinstance(expected, str):
        return str(outcome)
    if (kinds := _kinds(outcome)) != _kinds(expected):
        missing = "; is there a return?" if kinds == "NoneType" else ""
        return f"{', '.join(chosen['returns'])} must be {_kinds(expected)}, got {kinds}{missing}"
    for name, right, result in zip(chosen["returns"], expected, outcome, strict=True):
        if not isinstance(right, Tensor):
            if result != right:
                return f"{name} are {brief(result)}, expected {brief(right)}"
        elif rows := (~_close(result, right)).nonzero()[:1, :-1].tolist():
            row = tuple(rows[0])
            return f"{name}{rows[0] or ''} is {brief(result[row])}, expected {brief(right[row])}"
    return ""


def _close(result: Tensor, right: Tensor) -> Tensor:
    return torch.isclose(result.double(), right.double(), rtol=SHARE, atol=MARGIN, equal_nan=True)


def _same(first: Outcome, second: Outcome) -> bool:
    """Return whether two outcomes have the same numbers, or the same error."""
    if isinstance(first, str) or isinstance(second, str) or _kinds(first) != _kinds(second):
        return isinstance(first, str) and first == second
    return all(
        _close(left, right).all() if isinstance(left, Tensor) else left == right
        for left, right in zip(first, second, strict=True)
    )


def _reason(chosen: Mapping[str, Any], cases: Mapping[str, Any], outcomes: Mapping[str, Outcome], wrong: str) -> str:
    """Return the sentence of the mistake with the same outcome in the case `wrong`, and in most of the others."""
    agreements = [(0, "")]
    for mistake in chosen["mistakes"]:
        exec(chosen["solution"].replace(mistake["old"], mistake["new"]), names := dict[str, Any]())
        same = [name for name in cases if _same(_outcome(names[chosen["function"]], cases[name]), outcomes[name])]
        agreements.append((len(same) if wrong in same else 0, mistake["why"]))
    return max(agreements, key=lambda agreement: agreement[0])[1]


@torch.no_grad()
def _panels(picture: Mapping[str, str], function: Callable[..., Any], names: dict[str, Any]) -> dict[str, Panel]:
    """Return what a correct function draws."""
    names = names | {"function": function, "inputs": _inputs(picture["inputs"], names)}
    weights, rows, columns = (eval(picture[name], names) for name in ("weights", "rows", "columns"))
    draw = head_panels if weights.dim() > 2 else lambda *labelled, title: {title: panel(*labelled, title=title)}
    return draw(weights, rows, columns, title=picture["title"])
