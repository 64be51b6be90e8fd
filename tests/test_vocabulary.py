"""The words of the house, counted.

Literary names, class names that stand twice, riddling docstrings, splits that serve no reader. Each count has a budget,
which may only fall: who brings a count down lowers its budget, and nobody raises one.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "attent"
# No nouns of attention, of PyTorch or of anybody's toolkit: a name says what a thing is.
LITERARY = """
found one other some told said kept ours theirs here there place places every each which who where what how behind
beside known wanted given asked needed begun taken most least likeliest look looks looked seen heard so_far made nothing
few many again still going turn turns turned shown shows alike apart together alone both
"""
OPENINGS = re.compile(r"(?:What|How|Whether|Which|One|Who|Where|The same)\b")

# How far a count may lie below its budget before the budget has to follow.
SLACK = 5


@cache
def nodes() -> dict[Path, tuple[ast.AST, ...]]:
    return {
        path: tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8")))) for path in sorted(PACKAGE.rglob("*.py"))
    }


@cache
def modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in nodes()
    }


@cache
def import_graph() -> dict[str, set[str]]:
    """The modules of ours that each imports anywhere, within functions and for type checkers too."""
    graph: dict[str, set[str]] = {}
    for module, path in modules().items():
        names: set[str] = set()
        for node in nodes()[path]:
            if isinstance(node, ast.ImportFrom) and node.module:
                full = {alias: f"{node.module}.{alias.name}" for alias in node.names}
                names |= {name if name in modules() else node.module for name in full.values()}
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
        graph[module] = (names & modules().keys()) - {module}
    return graph


def reachable(start: str) -> set[str]:
    """The modules that a chain of imports leads to."""
    visited: set[str] = set()
    waiting = [start]
    while waiting:
        new = import_graph()[waiting.pop()] - visited
        visited |= new
        waiting += new
    return visited


def literary_names() -> list[str]:
    """Names that are assigned or taken as a parameter, attributes included, and are of the literary list."""
    literary, names = set(LITERARY.split()), list[str]()
    for path, inner in nodes().items():
        for node in inner:
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                    if name.strip("_") in literary:
                        names.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {name}")
                case _:
                    pass
    return names


def class_names_that_stand_twice() -> list[str]:
    files: dict[str, list[str]] = defaultdict(list)
    for path, inner in nodes().items():
        for node in inner:
            if isinstance(node, ast.ClassDef):
                files[node.name].append(f"{path.relative_to(PACKAGE)}")
    return [f"{name}: {', '.join(paths)}" for name, paths in files.items() if len(paths) > 1]


def native_imports_outside_ops() -> list[str]:
    return [
        name
        for name, imports in import_graph().items()
        if "attent.ops.native" in imports and not name.startswith("attent.ops")
    ]


def modules_in_an_import_circle() -> list[str]:
    return [name for name, path in modules().items() if path.name != "__init__.py" and name in reachable(name)]


def modules_with_one_importer_in_their_folder() -> list[str]:
    importers = Counter(target for imports in import_graph().values() for target in imports)
    return [
        f"{target} <- {module}"
        for module, imports in import_graph().items()
        for target in imports
        if importers[target] == 1 and target.rpartition(".")[0] == module.rpartition(".")[0]
    ]


def docstrings_that_open_with_a_question_word() -> list[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    return [
        f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 1)}"
        for path, inner in nodes().items()
        for node in inner
        if isinstance(node, documented) and OPENINGS.match(ast.get_docstring(node) or "")
    ]


BUDGETS: dict[Callable[[], list[str]], int] = {
    literary_names: 23,
    class_names_that_stand_twice: 0,
    native_imports_outside_ops: 0,
    modules_in_an_import_circle: 0,
    modules_with_one_importer_in_their_folder: 24,
    docstrings_that_open_with_a_question_word: 0,
}


@pytest.mark.parametrize("count", BUDGETS)
def test_a_count_keeps_to_its_budget(count: Callable[[], list[str]]) -> None:
    positions = count()
    assert len(positions) <= BUDGETS[count], "\n" + "\n".join(positions)
    assert len(positions) >= BUDGETS[count] - SLACK, f"lower the budget of {count.__name__} to {len(positions)}"
