"""Options read off settings: names, types, bounds, defaults, help and environment variables, and what comes back."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
import typer
from typer.testing import CliRunner

from attent.cli.commands import expanded
from attent.cli.options import Given, Offer
from attent.errors import ArgumentError
from attent.setting import Bound, Flag, Help

COMMANDS = Path(inspect.getfile(expanded)).parents[1]
Search = Annotated[
    "Given[Any]", Offer("attent.search.settings", "SearchSettings", ("beam", "sample", "maximum_length"))
]
Renamed = Annotated[
    "Given[Any]",
    Offer("attent.search.settings", "SearchSettings", ("seed",), options={"beam": "width"}, overrides=True),
]


@dataclass(frozen=True)
class Basket:
    """A dataclass of each kind of field."""

    variables: ClassVar[str] = "BASKET_"

    apples: Annotated[int, Bound(0, 9), Help("Number of apples.")]
    color: Annotated[Literal["red", "green"] | None, Help("Color of the apples.")] = None
    name: Annotated[tuple[str, ...], Help("Name; repeatable.", "NAME")] = ()
    closed: Annotated[bool, Help("Close it.")] = False
    sorted: Annotated[bool, Flag("--sorted/--mixed"), Help("Sort it.")] = True
    inner: int = 7


def run(command: Callable[..., None], *words: str, **variables: str) -> Any:
    app = typer.Typer(rich_markup_mode=None)
    app.command()(expanded(command))
    return CliRunner().invoke(app, words, env=variables)


def received(command: Callable[..., list[Any]], *words: str, **variables: str) -> list[Any]:
    """What a command receives that appends it to a list."""
    result = run(command, *words, **variables)
    assert result.exit_code == 0, result.output
    return command.__globals__["RECEIVED"].pop()


RECEIVED: list[Any] = []


def carry(basket: Basket, label: Annotated[str, Help("Label of the basket.")] = "none") -> None:
    RECEIVED.append((basket, label))


def look(search: Search) -> None:
    RECEIVED.append(search)


def find(search: Renamed) -> None:
    RECEIVED.append(search)


def test_a_dataclass_comes_back_as_an_object() -> None:
    assert received(carry, "--apples", "3") == (Basket(3), "none")
    words = ["--apples", "9", "--color", "red", "--name", "a", "--name", "b", "--closed", "--mixed", "--label", "x"]
    assert received(carry, *words) == (Basket(9, "red", ("a", "b"), closed=True, sorted=False), "x")
    assert received(carry, BASKET_APPLES="4", BASKET_NAME="a b", BASKET_CLOSED="1") == (
        Basket(4, name=("a", "b"), closed=True),
        "none",
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("", "Missing option '--apples'"),
        ("--apples 10", "Invalid value for '--apples'"),
        ("--apples 1 --color blue", "Invalid value for '--color'"),
        ("--apples 1 --inner 2", "No such option: --inner"),
    ],
)
def test_a_wrong_option_is_refused(words: str, problem: str) -> None:
    result = run(carry, *words.split())
    assert result.exit_code == 2 and problem in result.output


def test_an_offer_tells_what_was_given() -> None:
    from attent.search.settings import SearchSettings

    assert received(look).values == {}
    inputs = received(look, "--max-length", "5", "--sample")
    assert inputs.values == {"maximum_length": 5, "sample": True}
    assert inputs.options["maximum_length"] == "--max-length"
    assert inputs.settings() == SearchSettings(maximum_length=5, sample=True)
    assert inputs.settings(seed=3) == SearchSettings(maximum_length=5, sample=True, seed=3)
    # a zero is a value, too
    assert received(find, "--seed", "0", "--width", "2").values == {"beam": 2, "seed": 0}


def test_bounds_of_an_offer() -> None:
    assert "Invalid value for '--width'" in run(find, "--width", "0").output
    with pytest.raises(ArgumentError, match="--max-length must be at least 1, got -4"):
        received(look, "--max-length", "-4").settings()
    with pytest.raises(ArgumentError, match="sampling uses no beam"):
        received(look, "--beam", "2", "--sample").settings()


def test_options_are_read_off_settings_by_commands_of_few_parameters() -> None:
    files = [path.read_text(encoding="utf-8") for path in COMMANDS.rglob("*.py")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file))]
    called = Counter(ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call))
    # written for typer: positional arguments, and --version
    by_typer = called["typer.Option"] + called["typer.Argument"]
    assert by_typer <= 24
    # of the command alone, beside those of the settings of search, server, training and corpora
    assert by_typer + called["Help"] <= 170
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    assert not [item.name for item in functions if len(item.args.args) + len(item.args.kwonlyargs) > 12]
