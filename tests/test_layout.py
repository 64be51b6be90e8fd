"""The house of docs/design.md, enforced: who may import whom, what a file may be called, and how long it may be."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

# A room may import from the lines above it and from those left of it ("·") on its own.
# Those on two sides of "|" know nothing of each other.
HOUSE = """
errors · types · registry · bounded · devices · requirements · setting
ops
attention
layers · testing · mask_text
views · integrations · installation
text | models
runs · training | search
alignment
tasks
formats
documents
web
server · explorer · nonparametric
benchmark · comparison · cli · __main__
"""
# The same within attention/.
ATTENTION = """
base
scores · normalizers · masks · positions · weightings
choices · mask_info
call
arguments
reference
backends
maps
capture
attend
cache
multihead
"""

LONGEST = 470  # lines
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "attent"
TESTS = ROOT / "tests"


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def all_python() -> list[Path]:
    return [path for path in kept_text() if path.suffix == ".py"]


@cache
def kept_text() -> tuple[Path, ...]:
    """Every file that git tracks, or would."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout: what is tracked is not known")
    return tuple(sorted(path for name in set(listed.stdout.split("\0")) if name and (path := ROOT / name).is_file()))


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> frozenset[str]:
    return frozenset(module_of(path) for path in sources())


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def assert_none(wrong: list[str]) -> None:
    assert not wrong, "\n" + "\n".join(wrong)


def location_of(path: Path, node: ast.stmt | ast.expr) -> str:
    return f"{path.relative_to(ROOT).as_posix()}:{node.lineno}"


def imported(path: Path, node: ast.AST) -> list[str]:
    """The modules of ours that one node imports, be it a statement or a call such as import_module("attent.models")."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            package = module_of(path).split(".") + (["__init__"] if path.name == "__init__.py" else [])
            base = ".".join([*package[: -node.level], *([node.module] if node.module else [])])
        names = [whole if (whole := f"{base}.{alias.name}") in modules() else base for alias in node.names]
    elif (
        isinstance(node, ast.Call)
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value in modules() - {"attent"}
    ):
        names = [str(node.args[0].value)]
    return [name for name in names if name.split(".")[0] == "attent"]


def every_import(path: Path) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.stmt | ast.expr):
            yield from ((node, target) for target in imported(path, node))


def imports_when_loaded(path: Path) -> set[str]:
    """The modules of ours that importing a file imports: not those within functions, nor those for type checkers."""
    result: set[str] = set()
    waiting: list[ast.AST] = list(tree(path).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            if isinstance(node.test, ast.Name | ast.Attribute):
                waiting.extend(node.orelse)
            continue
        result.update(imported(path, node))
        waiting.extend(ast.iter_child_nodes(node))
    return result


def room_places(table: str) -> dict[str, tuple[int, int, int]]:
    """Each room's place: its line, how far right it is, and its side of the bar."""
    values: dict[str, tuple[int, int, int]] = {}
    for line, text in enumerate(table.strip().splitlines()):
        for column, group in enumerate(text.split("·")):
            for side, room in enumerate(group.split("|")):
                values[room.strip()] = (line, column, side)
    return values


def may_import(table: dict[str, tuple[int, int, int]], room: str, second: str) -> bool:
    return room == second or table[second][:2] < table[room][:2]


def out_of_order(table: str, inside: str) -> list[str]:
    """Every import that goes the wrong way between the rooms of one package, whose own __init__ may import them all."""
    order = room_places(table)
    depth = inside.count(".") + 1
    wrong: list[str] = []
    for path in sources():
        module = module_of(path)
        if not module.startswith(f"{inside}."):
            continue
        room = module.split(".")[depth]
        if room not in order:
            wrong.append(f"{path.relative_to(ROOT).as_posix()}: {room} has no place in the table")
            continue
        for node, target in every_import(path):
            if target == inside:
                wrong.append(
                    f"{location_of(path, node)}: {room} imports {inside}, which it is part of; import from the file "
                    "that has it"
                )
            elif target.startswith(f"{inside}."):
                second = target.split(".")[depth]
                if second in order and not may_import(order, room, second):
                    wrong.append(
                        f"{location_of(path, node)}: {room} imports {target}, which stands below it or beside it"
                    )
    return wrong


def test_tables_read_as_they_look() -> None:
    order = room_places(HOUSE)
    assert may_import(order, "cli", "attention")
    assert may_import(order, "registry", "errors")
    assert may_import(order, "search", "runs")
    assert not may_import(order, "attention", "layers")
    assert not may_import(order, "models", "text")
    assert not may_import(order, "text", "models")
    assert not may_import(order, "training", "search")
    assert not may_import(order, "search", "training")
    assert not may_import(order, "runs", "training")


def test_imports_go_one_way() -> None:
    assert_none(out_of_order(HOUSE, "attent"))


def test_imports_go_one_way_within_attention() -> None:
    assert_none(out_of_order(ATTENTION, "attent.attention"))


def test_the_core_needs_torch_and_numpy_alone() -> None:
    lines = HOUSE.strip().splitlines()
    last = next(index for index, line in enumerate(lines) if "views" in line)
    core = {room.strip() for line in lines[: last + 1] for room in line.split("·")} | {"__init__"}
    allowed = {*sys.stdlib_module_names, "attent", "torch", "numpy"}
    # transformers' own door, pictures, kernels for GPUs, the build, and what type checkers alone read
    allowed |= {"transformers", "matplotlib", "triton", "setuptools", "jaxtyping"}
    wrong: list[str] = []
    for path in sources():
        if path.relative_to(PACKAGE).with_suffix("").parts[0] not in core:
            continue
        for node in ast.walk(tree(path)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            wrong += [f"{location_of(path, node)}: {name}" for name in names if name.partition(".")[0] not in allowed]  # pyright: ignore[reportArgumentType]
    assert_none(wrong)


def test_no_two_modules_import_each_other() -> None:
    graph = {module_of(path): imports_when_loaded(path) - {module_of(path)} for path in sources()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail("a circle of imports: " + " → ".join(error.args[1]))


def test_ops_alone_choose_their_fast_version() -> None:
    """Whoever calls an op does not ask whether it is fast; attention's backends are the fast versions of `attend`."""
    choices = {"can_run_native", "can_use_amx", "can_run_triton"}
    wrong: list[str] = []
    for path in sources():
        if path.relative_to(PACKAGE).as_posix().startswith(("ops/", "attention/backends/")):
            continue
        for node in ast.walk(tree(path)):
            names = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set[str]()
            names |= {node.attr} if isinstance(node, ast.Attribute) else set()
            wrong += [f"{location_of(path, node)}: {name}" for name in sorted(names & choices)]  # pyright: ignore[reportArgumentType]
    assert_none(wrong)


def test_every_module_is_tested_in_its_folder() -> None:
    """Tests mirror folders.

    A file of tests/runs/ names something of src/attent/runs/, or has one of its modules' names.
    """
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    wrong: list[str] = []
    for path in sources():
        names = [node.name for node in tree(path).body if isinstance(node, defined)]
        if path.name.startswith("__") or not names:
            continue
        folder = TESTS / path.parent.relative_to(PACKAGE)
        tests = [
            *(folder.glob("*.py") if folder == TESTS else folder.rglob("*.py")),
            *folder.parent.glob(f"test_{path.stem}.py"),
        ]
        named = re.compile(rf"\b(?:{'|'.join(names)})\b")
        if not any(
            file.stem == f"test_{path.stem}" or named.search(file.read_text(encoding="utf-8")) for file in tests
        ):
            wrong.append(
                f"{path.relative_to(ROOT).as_posix()} is tested by nothing in {folder.relative_to(ROOT).as_posix()}/"
            )
    assert_none(wrong)


def test_no_file_is_too_long() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in all_python()
    }
    assert_none([f"{name}: {length} lines" for name, length in lengths.items() if length > LONGEST])


def test_every_name_says_something() -> None:
    named = {
        path.relative_to(ROOT).as_posix(): {part.strip("_") for part in path.relative_to(ROOT).with_suffix("").parts}
        for path in all_python()
    }
    assert_none([name for name, parts in named.items() if parts & NAMES_THAT_SAY_NOTHING])


def test_nothing_is_pickled() -> None:
    """Pickle runs whatever code a file holds; a saved model is safetensors and JSON."""
    wrong: list[str] = []
    for path in sources():
        for node in ast.walk(tree(path)):
            match node:
                case ast.Import(names=names) if {alias.name.split(".")[0] for alias in names} & {
                    "pickle",
                    "dill",
                    "joblib",
                    "shelve",
                }:
                    wrong.append(location_of(path, node))
                case ast.ImportFrom(module="pickle" | "dill" | "joblib" | "shelve"):
                    wrong.append(location_of(path, node))
                case ast.ImportFrom(module="torch", names=names) if {alias.name for alias in names} & {"load", "save"}:
                    wrong.append(location_of(path, node))
                case ast.Attribute(value=ast.Name(id="torch"), attr="load" | "save"):
                    wrong.append(location_of(path, node))
                case ast.keyword(arg="allow_pickle", value=ast.Constant(value=True)):
                    wrong.append(location_of(path, node.value))
                case _:
                    pass
    assert_none(wrong)


# Written so that they do not find themselves. UTS numbers are those of Unicode's standards.
PRIVATE = {
    "a path of somebody's machine": re.compile(r"(?<![\w.])/(?:work|root|opt)/"),
    "a working ses" + "sion": re.compile(r"(?i)\bses" + r"sions?\b(?<!scope=.ses" + "sion)"),
    "an issue number": re.compile(
        r"(?i)\b(?:issue|pull request|fixes|closes|gh)[ -]#?\d+|(?<=[\s(])(?<!UTS )#\d+\b(?![;\w])"
    ),
}


def test_text_speaks_of_the_package_alone() -> None:
    """Neither where it was written, nor when, nor the number under which somebody asked for it."""
    wrong: list[str] = []
    for path in kept_text():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            wrong += [
                f"{path.relative_to(ROOT).as_posix()}:{number}: {key}"
                for key, pattern in PRIVATE.items()
                if pattern.search(line)
            ]
    assert_none(wrong)


@pytest.mark.parametrize(
    ("line", "result"),
    [
        ("see /wor" + "k/data", True),
        ("../wor" + "k/data", False),
        ("the last ses" + "sion", True),
        ('@pytest.fixture(scope="session")', False),
        ("mended (#" + "12)", True),
        ("issue" + " 7", True),
        ("color: #333;", False),
        ("Unicode, UTS #35", False),
        ('"#404040"', False),
        ("obsession", False),
    ],
)
def test_private_text_is_recognised(line: str, result: bool) -> None:
    assert any(pattern.search(line) for pattern in PRIVATE.values()) is result


TASK_NAMES = {"translate", "fill-mask", "classify", "text-generation"}


def strings_of(path: Path) -> set[str]:
    """The strings of a file that are no docstrings."""
    documented = [
        node for node in ast.walk(tree(path)) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    ]
    docstrings = {id(node.body[0].value) for node in documented if node.body and isinstance(node.body[0], ast.Expr)}
    strings = (node for node in ast.walk(tree(path)) if isinstance(node, ast.Constant) and id(node) not in docstrings)
    return {node.value for node in strings if isinstance(node.value, str)}


def test_a_task_is_named_in_its_folder() -> None:
    """Beside the default of old configs, two files have words that are also names of a command and of an attribute."""
    outside = {path.relative_to(PACKAGE).as_posix() for path in sources() if strings_of(path) & TASK_NAMES}
    outside = {path for path in outside if not path.startswith("tasks/")}
    assert outside <= {"runs/config.py", "cli/commands/__init__.py", "documents/html.py"}


def test_no_table_is_keyed_by_tasks() -> None:
    assert_none(
        [
            location_of(path, node)
            for path in sources()
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Dict)
            and len({key.value for key in node.keys if isinstance(key, ast.Constant)} & TASK_NAMES) > 1
        ]
    )
