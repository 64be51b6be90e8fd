"""The words of the house, counted.

Literary names, class names that stand twice, riddling docstrings, splits that serve no reader. Each count has a budget,
which may only fall: who brings a count down lowers its budget, and nobody raises one.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "attent"
# No nouns of attention, of PyTorch or of anybody's toolkit: a name says what a thing is.
LITERARY = frozenset(
    [
        "found",
        "one",
        "other",
        "some",
        "told",
        "said",
        "kept",
        "ours",
        "theirs",
        "here",
        "there",
        "place",
        "places",
        "every",
        "each",
        "which",
        "who",
        "where",
        "what",
        "how",
        "behind",
        "beside",
        "known",
        "wanted",
        "given",
        "asked",
        "needed",
        "begun",
        "taken",
        "most",
        "least",
        "likeliest",
        "look",
        "looks",
        "looked",
        "seen",
        "heard",
        "so_far",
        "made",
        "nothing",
        "few",
        "many",
        "again",
        "still",
        "going",
        "turn",
        "turns",
        "turned",
        "shown",
        "shows",
        "alike",
        "apart",
        "together",
        "alone",
        "both",
    ]
)
OPENINGS = re.compile(r"(?:What|How|Whether|Which|One|Who|Where|The same)\b")

BUDGETS = {
    "literary names": 23,
    "class names that stand twice": 0,
    "modules outside ops that import the native library": 0,
    "modules in an import circle": 0,
    "modules with one importer, in its folder": 24,
    "docstrings that open with a question word": 0,
}
# How far a count may lie below its budget before the budget has to follow.
SLACK = 5


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in trees()
    }


def literary_names(tree: ast.Module) -> list[str]:
    """Names that are assigned or taken as a parameter, attributes included, and are of the literary list."""
    names: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                names += [f"{name}, line {node.lineno}"] if name.strip("_") in LITERARY else []
            case _:
                pass
    return names


def imported_modules(tree: ast.Module) -> set[str]:
    """The modules of ours that a file imports anywhere, within functions and for type checkers too."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {
                full if (full := f"{node.module}.{alias.name}") in modules() else node.module for alias in node.names
            }
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names & modules().keys()


@cache
def import_graph() -> dict[str, set[str]]:
    return {module: imported_modules(trees()[path]) - {module} for module, path in modules().items()}


def is_package(module: str) -> bool:
    return modules()[module].name == "__init__.py"


def reachable(start: str) -> set[str]:
    """The modules that a chain of imports leads to."""
    visited: set[str] = set()
    waiting = [start]
    while waiting:
        new = import_graph()[waiting.pop()] - visited
        visited |= new
        waiting += new
    return visited


def count_literary_names() -> list[str]:
    return [f"{path.relative_to(PACKAGE)}: {name}" for path, tree in trees().items() for name in literary_names(tree)]


def count_double_class_names() -> list[str]:
    files: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(f"{path.relative_to(PACKAGE)}")
    return [f"{name}: {', '.join(paths)}" for name, paths in files.items() if len(paths) > 1]


def count_native_imports() -> list[str]:
    return [
        name
        for name, imports in import_graph().items()
        if "attent.ops.native" in imports and not name.startswith("attent.ops")
    ]


def count_import_circles() -> list[str]:
    return [name for name in modules() if not is_package(name) and name in reachable(name)]


def count_single_importers() -> list[str]:
    importers = Counter(target for imports in import_graph().values() for target in imports)
    return [
        f"{target} <- {module}"
        for module, imports in import_graph().items()
        for target in imports
        if importers[target] == 1 and target.rpartition(".")[0] == module.rpartition(".")[0]
    ]


def count_openings() -> list[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    return [
        f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 1)}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, documented) and OPENINGS.match(ast.get_docstring(node) or "")
    ]


COUNTS = dict(
    zip(
        BUDGETS,
        (
            count_literary_names,
            count_double_class_names,
            count_native_imports,
            count_import_circles,
            count_single_importers,
            count_openings,
        ),
        strict=True,
    )
)


@pytest.mark.parametrize("name", BUDGETS)
def test_a_count_keeps_to_its_budget(name: str) -> None:
    positions = COUNTS[name]()
    assert len(positions) <= BUDGETS[name], "\n" + "\n".join(positions)
    assert len(positions) >= BUDGETS[name] - SLACK, f"lower the budget of {name} to {len(positions)}"


def test_what_counts_as_literary() -> None:
    tree = ast.parse("found = 1\nclass A:\n    def f(self, kept, *, keep_mask):\n        self.told = kept\n")
    assert sorted(literary_names(tree)) == ["found, line 1", "kept, line 3", "told, line 4"]
