"""The house of docs/design.md, enforced: who may import whom, what a file may be called, and how long it may be."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

# A room may import from the lines above it and from those left of it ("·") on its own.
# Those on two sides of "|" know nothing of each other.
HOUSE = """
system · errors · types · registry · bounded · devices · requirements · setting
ops
attention
layers · testing · mask_text
views · integrations · installation
text | models
runs · training | search
alignment · learning
tasks
formats
documents
web
server · explorer · nonparametric
cli · __main__
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
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "attent"
TESTS = ROOT / "tests"


@cache
def sources() -> tuple[Path, ...]:
    return tuple(sorted(PACKAGE.rglob("*.py")))


@cache
def kept_text() -> tuple[Path, ...]:
    """Every file that git tracks, or would."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
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


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree(path)))


def assert_none(wrong: list[str]) -> None:
    assert not wrong, "\n" + "\n".join(wrong)


def location_of(path: Path, node: ast.stmt | ast.expr) -> str:
    return f"{path.relative_to(ROOT).as_posix()}:{node.lineno}"


def imported(path: Path, node: ast.AST) -> list[str]:
    """The modules of ours that one node imports, be it a statement or a call such as import_module("attent.models")."""
    match node:
        case ast.Import(names=aliases):
            names = [alias.name for alias in aliases]
        case ast.ImportFrom(module=module, names=aliases, level=level):
            base = module or ""
            if level:
                package = module_of(path).split(".") + (["__init__"] if path.name == "__init__.py" else [])
                base = ".".join([*package[:-level], *([module] if module else [])])
            names = [full if (full := f"{base}.{alias.name}") in modules() else base for alias in aliases]
        case ast.Call(args=[ast.Constant(value=str(name)), *_]) if name != "attent" and name in modules():
            names = [name]
        case _:
            names = []
    return [name for name in names if name.split(".")[0] == "attent"]


@cache
def every_import(path: Path) -> tuple[tuple[ast.stmt | ast.expr, str], ...]:
    return tuple(
        (node, target)
        for node in nodes(path)
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call)
        for target in imported(path, node)
    )


def room_places(table: str) -> dict[str, tuple[int, int, int]]:
    """Each room's place: its line, how far right it is, and its side of the bar."""
    return {
        room.strip(): (line, column, side)
        for line, text in enumerate(table.strip().splitlines())
        for column, group in enumerate(text.split("·"))
        for side, room in enumerate(group.split("|"))
    }


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


@pytest.mark.parametrize(("table", "inside"), [(HOUSE, "attent"), (ATTENTION, "attent.attention")])
def test_imports_go_one_way(table: str, inside: str) -> None:
    assert_none(out_of_order(table, inside))


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
        for node in nodes(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            wrong += [f"{location_of(path, node)}: {name}" for name in names if name.partition(".")[0] not in allowed]  # pyright: ignore[reportArgumentType]
    assert_none(wrong)


def test_ops_alone_choose_their_fast_version() -> None:
    """Whoever calls an op does not ask whether it is fast; attention's backends are the fast versions of `attend`."""
    choices = {"can_run_native", "can_use_amx", "can_run_triton"}
    wrong: list[str] = []
    for path in sources():
        if path.relative_to(PACKAGE).as_posix().startswith(("ops/", "attention/backends/")):
            continue
        for node in nodes(path):
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


def test_files_are_short_and_have_names() -> None:
    wrong: list[str] = []
    for path in (path for path in kept_text() if path.suffix == ".py"):
        name, length = path.relative_to(ROOT), len(path.read_text(encoding="utf-8").splitlines())
        wrong += [f"{name}: {length} lines"] if length > LONGEST else []
        wrong += [f"{name}"] if {part.strip("_") for part in name.with_suffix("").parts} & EMPTY_NAMES else []
    assert_none(wrong)


def test_nothing_is_pickled() -> None:
    """Pickle runs whatever code a file holds; a saved model is safetensors and JSON."""
    picklers = {"pickle", "dill", "joblib", "shelve"}
    wrong: list[str] = []
    for path in sources():
        for node in nodes(path):
            match node:
                case ast.Import(names=names):
                    pickles = bool({alias.name.split(".")[0] for alias in names} & picklers)
                case ast.ImportFrom(module=str(module), names=names):
                    pickles = module in picklers
                    pickles |= module == "torch" and bool({alias.name for alias in names} & {"load", "save"})
                case ast.Attribute(value=ast.Name(id="torch"), attr="load" | "save"):
                    pickles = True
                case ast.keyword(arg="allow_pickle", value=ast.Constant(value=True)):
                    pickles = True
                case _:
                    pickles = False
            wrong += [location_of(path, node)] if pickles else []  # pyright: ignore[reportArgumentType]
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
        for key, pattern in PRIVATE.items():
            if pattern.search(text):
                lines = [number for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]
                wrong += [f"{path.relative_to(ROOT).as_posix()}:{number}: {key}" for number in lines]
    assert_none(wrong)


# There, or not the same, on Linux alone, on Unix alone, or everywhere but on Windows.
MODULES_OF_ONE_SYSTEM = {
    *("fcntl", "grp", "msvcrt", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty", "winreg")
}
NAMES_OF_ONE_SYSTEM = {
    "os": "O_DIRECT O_DIRECTORY O_NOFOLLOW chown fork forkpty geteuid getloadavg getpgid getpgrp getuid killpg "
    "mkfifo nice posix_fadvise posix_fallocate pread pwrite sched_getaffinity sched_setaffinity sendfile setpgid "
    "setsid startfile statvfs sync sysconf uname wait4 waitpid",
    "signal": "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 alarm pause "
    "setitimer sigwait",
    "time": "CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_MONOTONIC_RAW clock_gettime",
}
GUARDS = ("system.IS_LINUX", "hasattr", "getattr")


def guarded(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether a node lies in a try that expects it to fail, or under a question about the system."""
    while node in parents:
        node, child = parents[node], node
        if isinstance(node, ast.Try) and node.handlers and child in node.body:
            return True
        if isinstance(node, ast.If | ast.IfExp | ast.BoolOp) and any(guard in ast.unparse(node) for guard in GUARDS):
            return True
    return False


def of_one_system(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(alias.name.split(".")[0] in MODULES_OF_ONE_SYSTEM for alias in names)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            return module in MODULES_OF_ONE_SYSTEM or any(
                alias.name in NAMES_OF_ONE_SYSTEM.get(module, "").split() for alias in names
            )
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return name in NAMES_OF_ONE_SYSTEM.get(module, "").split()
        case ast.Constant(value=str(text)):
            return text.startswith(("/proc/", "/sys/", "/dev/"))
        case _:
            return False


def test_nothing_needs_one_operating_system() -> None:
    """And one file alone asks which it is, so that tests can say that it is another."""
    wrong: list[str] = []
    for path in sources():
        if path.name != "system.py":
            questions = (node for node in nodes(path) if isinstance(node, ast.Attribute))
            wrong += [location_of(path, node) for node in questions if ast.unparse(node) in ("sys.platform", "os.name")]
        if of_one := [node for node in nodes(path) if of_one_system(node)]:
            parents = {child: node for node in nodes(path) for child in ast.iter_child_nodes(node)}
            wrong += [location_of(path, node) for node in of_one if not guarded(node, parents)]  # pyright: ignore[reportArgumentType]
    assert_none(wrong)


def test_texts_are_written_with_the_same_line_ends_everywhere() -> None:
    """Digests, sizes and lines of a run's files are those of their bytes."""
    wrong: list[str] = []
    for path in sources():
        for node in nodes(path):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("write_text", "open"):
                options = {keyword.arg for keyword in node.keywords}
                wrong += [location_of(path, node)] if "encoding" in options and "newline" not in options else []
    assert_none(wrong)


TASK_NAMES = {"translate", "fill-mask", "classify", "text-generation"}


def strings_of(path: Path) -> set[str]:
    """The strings of a file that are no docstrings."""
    documented = [node for node in nodes(path) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docstrings = {id(node.body[0].value) for node in documented if node.body and isinstance(node.body[0], ast.Expr)}
    strings = (node for node in nodes(path) if isinstance(node, ast.Constant) and id(node) not in docstrings)
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
            for node in nodes(path)
            if isinstance(node, ast.Dict)
            and len({key.value for key in node.keys if isinstance(key, ast.Constant)} & TASK_NAMES) > 1
        ]
    )
