"""The package from outside: the wheel, what importing it costs, its public names, and the systems it runs on."""

from __future__ import annotations

import ast
import ctypes
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import attent
from attent.ops import native

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "attent"

# There, or not the same, on Linux alone, on Unix alone, or everywhere but on Windows.
MODULES_OF_ONE_SYSTEM = {
    *("fcntl", "grp", "msvcrt", "posix", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty", "winreg")
}
NAMES_OF_ONE_SYSTEM = {
    module: set(names.split())
    for module, names in {
        "os": "O_DIRECT O_DIRECTORY O_NOFOLLOW chown fork forkpty geteuid getloadavg getpgid getpgrp getuid killpg "
        "mkfifo nice posix_fadvise posix_fallocate pread pwrite sched_getaffinity sched_setaffinity sendfile setpgid "
        "setsid startfile statvfs sync sysconf uname wait4 waitpid",
        "signal": "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 alarm pause "
        "setitimer sigwait",
        "time": "CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_MONOTONIC_RAW clock_gettime",
    }.items()
}
GUARDS = ("sys.platform", "os.name", "platform.system", "hasattr", "getattr")


def python(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_does_no_work() -> None:
    python(
        "import attent, sys; assert not [name for name in sys.modules if name.startswith('attent.')]; attent.errors."
        "ShapeError; assert not {'torch', 'numpy'} & set(sys.modules)"
    )


def test_the_rooms_are_reached_from_the_root_and_single_uses_import_their_libraries() -> None:
    modules = "attent.tasks.loading, attent.tasks.recipe, attent.tasks.evaluation, attent.benchmark.report"
    python(
        f"import attent; attent.attention; attent.models; import sys, {modules}; "
        "assert not {'babel', 'sacrebleu', 'sentencepiece', 'torch._dynamo'} & set(sys.modules)"
    )


@pytest.mark.parametrize("name", attent.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(attent, name) is not None
    assert name in dir(attent)


def test_nothing_else_is_listed() -> None:
    assert {name for name in dir(attent) if not name.startswith("__")} == {*attent.__all__} - {"__version__"}


def test_version_is_the_installed_one() -> None:
    assert attent.__version__ == importlib.metadata.version("attent")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'atend'"):
        _ = attent.atend


def test_type_checkers_see_the_same_names() -> None:
    body = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")).body
    checker_block = next(
        node for node in body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    homes = {
        alias.name: node.module
        for node in checker_block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert homes == {**attent._HOMES, **dict.fromkeys(attent._MODULES, "attent")}
    assert {*homes, "__version__"} == set(attent.__all__)


def test_the_installed_command_helps() -> None:
    command = shutil.which("attent", path=str(Path(sys.executable).parent))
    assert command is not None, "attent is not installed beside this interpreter: run scripts/install dev"
    assert b"translate" in subprocess.run([command, "--help"], capture_output=True, check=True).stdout


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
                alias.name in NAMES_OF_ONE_SYSTEM.get(module, ()) for alias in names
            )
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return name in NAMES_OF_ONE_SYSTEM.get(module, ())
        case ast.Constant(value=str(text)):
            return text.startswith(("/proc/", "/sys/", "/dev/"))
        case _:
            return False


def unguarded(source: str) -> list[int]:
    module = ast.parse(source)
    if not (nodes := [node for node in ast.walk(module) if of_one_system(node)]):
        return []
    parents = {child: node for node in ast.walk(module) for child in ast.iter_child_nodes(node)}
    return [getattr(node, "lineno", 0) for node in nodes if not guarded(node, parents)]


def test_nothing_needs_one_operating_system() -> None:
    values = {
        path.relative_to(ROOT).as_posix(): unguarded(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    assert {name: lines for name, lines in values.items() if lines} == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import fcntl", [1]),
        ("from os import fork", [1]),
        ("import os\nos.getuid()", [2]),
        ("try:\n    import fcntl\nexcept ImportError:\n    fcntl = None", []),
        ("import os, sys\nif sys.platform == 'linux':\n    os.sync()", []),
        ("open('/proc/meminfo')", [1]),
    ],
)
def test_what_needs_one_operating_system_is_recognised(source: str, lines: list[int]) -> None:
    assert unguarded(source) == lines


def test_every_extra_that_is_asked_for_is_there() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    requests = {
        name
        for file in PACKAGE.rglob("*.py")
        for name in re.findall(r"attent\[([a-z]\w*)\]", file.read_text(encoding="utf-8"))
    }
    requests |= set(re.findall(r"\| `\[(\w+)\]` \|", page))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert requests == extras.keys() - {"dev"}


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="there is no release yet that pip could find")
def test_no_message_asks_pip_for_a_release_that_is_not_there() -> None:
    asking = [file for file in PACKAGE.rglob("*.py") if "pip install 'attent[" in file.read_text(encoding="utf-8")]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert not asking or re.search(r"^## \[?\d+\.\d+\.\d+", changes, re.MULTILINE)


def built(copy: Path, **environment: str) -> set[str]:
    """The names in a wheel built from a copy, so that the checkout stays clean."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(PACKAGE, copy / "src" / "attent", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    # An isolated build would fetch setuptools; where it is installed already, nothing need be fetched.
    setuptools_version = (
        importlib.util.find_spec("setuptools") and int(importlib.metadata.version("setuptools").split(".")[0]) >= 77
    )
    command = [sys.executable, "-m", "build", "--wheel", *(["--no-isolation"] if setuptools_version else []), str(copy)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COV_")}
    done = subprocess.run(command, env=inherited | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = (copy / "dist").glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in a wheel built without a compiler, which would take most of the time."""
    return built(tmp_path_factory.mktemp("attent"), CC="false", CXX="false", LDSHARED="false", LDCXXSHARED="false")


def test_without_a_compiler_there_is_a_wheel_all_the_same(wheel: set[str]) -> None:
    assert "attent/ops/csrc/tanh_score.cpp" in wheel
    assert not [name for name in wheel if name.endswith((".so", ".pyd"))]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler")
def test_with_one_the_extension_is_added(wheel: set[str], tmp_path: Path) -> None:
    (extension,) = built(tmp_path) - wheel
    assert extension.startswith("attent/ops/_compiled.")


@pytest.mark.needs_native
def test_the_compiled_library_serves_every_python(tmp_path: Path) -> None:
    """One wheel is enough: the library is found without a Python's name in its own, and calls nothing of Python's."""
    name = f"_compiled{importlib.machinery.EXTENSION_SUFFIXES[-1]}"
    (tmp_path / name).write_bytes(content := Path(native.library()._name).read_bytes())
    spec = importlib.machinery.PathFinder.find_spec("_compiled", [str(tmp_path)])
    assert not re.findall(rb"Py[A-Z_]\w+", content)
    repeated = ctypes.CDLL(spec.origin)
    assert all(hasattr(repeated, name) for name in native.SIGNATURES)


def test_the_citation_is_of_this_version() -> None:
    stated = dict(
        re.findall(
            r'^(version|license): "?([^"\n]+)"?$', (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert stated == {"version": project["version"], "license": project["license"]}


def test_the_wheel_holds_every_file_of_the_package(wheel: set[str]) -> None:
    files = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".so", ".pyd")
    }
    assert "attent/py.typed" in files
    assert files - wheel == set()


def test_the_wheel_holds_the_licence_and_nothing_else(wheel: set[str]) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel)
    assert {name.split("/")[0] for name in wheel if ".dist-info/" not in name} == {"attent"}
