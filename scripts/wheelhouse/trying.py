"""The wheels as a stranger uses them: clean environments without a compiler, for every Python of this machine."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from wheelhouse import NOT_CALLED

OLDEST = (3, 11)
NEWEST = (3, 14)
# Chosen for the functions of the library that they call; wheelhouse/entry_points.py says if one is left out.
TESTS = ("tests/ops", "tests/search", "tests/models", "tests/layers")
USES = """
import sys, torch, attent
from attent.ops import native
is_compiled = sys.argv[1] == "compiled"
assert (native.library() is not None) == is_compiled
query, key, value = torch.randn(3, 2, 4, 37, 16).unbind(0)
context = attent.attend(query, key, value, implementation="dense" if is_compiled else "auto")
torch.testing.assert_close(context, torch.nn.functional.scaled_dot_product_attention(query, key, value))
print(f"attent {attent.__version__}, torch {torch.__version__}, {sys.argv[1]}: attention is right")
"""
# Without PyTorch the library can be loaded all the same.
LOADS = """
import ctypes, importlib.machinery, sysconfig
folder = sysconfig.get_path("purelib") + "/attent/ops"
library = ctypes.CDLL(importlib.machinery.PathFinder.find_spec("_compiled", [folder]).origin)
print("the library is loaded, without PyTorch; SIMD level", library.attent_simd_level())
"""


class Environment:
    """A virtual environment whose commands find neither a compiler nor anything else of this machine."""

    def __init__(self, python: str, folder: Path, cwd: Path) -> None:
        """Create the environment."""
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
        self.bin = folder / ("Scripts" if os.name == "nt" else "bin")
        self.cwd = cwd
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self.variables = kept | {"PATH": str(self.bin)}

    def run(self, *command: str, is_optional: bool = False, cwd: Path | None = None) -> str | None:
        """Run a command and return what it prints; None if it fails and may."""
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=cwd or self.cwd,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and not is_optional:
            raise SystemExit(f"{' '.join(command)}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return None if done.returncode else done.stdout

    def install(self, *packages: str, is_optional: bool = False) -> bool:
        """Install packages with pip."""
        return self.run("python", "-m", "pip", "install", "--quiet", *packages, is_optional=is_optional) is not None


def find_python(version: str) -> str | None:
    """Return an interpreter of a version such as 3.12, pyenv's too."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    candidates = [f"python{version}", *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    check = f"import sys; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    for candidate in candidates:
        if shutil.which(candidate) and subprocess.run([candidate, "-c", check], capture_output=True).returncode == 0:
            return candidate
    return None


def interpreters() -> list[str]:
    """Return an interpreter of each supported version that this machine has."""
    found = (find_python(f"3.{minor}") for minor in range(OLDEST[1], NEWEST[1] + 1))
    return [python for python in found if python]


def try_all(checkout: Path, dist: Path, pythons: list[str]) -> None:
    """Install what is in a folder for each Python, and use it."""
    for python in pythons or interpreters():
        with tempfile.TemporaryDirectory() as folder:
            _try(python, Path(folder), checkout, dist.resolve())


def _try(python: str, work: Path, checkout: Path, dist: Path) -> None:
    version = subprocess.run(
        [python, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True, check=True
    ).stdout.split()
    is_oldest = tuple(map(int, version)) == OLDEST
    print(f"== Python {'.'.join(version)}")
    environment = Environment(python, work / "environment", work)
    wheel = str(_wheel_of_this_machine(environment, dist))
    pure = str(next(dist.glob("*-none-any.whl")))
    sdist = str(next(dist.glob("*.tar.gz")))
    constraints = ("--constraint", str(checkout / "constraints.txt"))
    torch = (checkout / "constraints.txt").read_text(encoding="utf-8").strip()
    if sys.platform == "linux":
        # not the gigabytes of CUDA
        torch += "+cpu"
    if not environment.install("--only-binary", ":all:", torch, is_optional=True):
        if is_oldest and (sys.platform, platform.machine()) != ("darwin", "x86_64"):
            raise SystemExit(f"pip finds no {torch}: name an index by PIP_EXTRA_INDEX_URL, see docs/install.md")
        environment.install("--no-deps", wheel)
        print(environment.run("python", "-c", LOADS), end="")
        print(f"skipped the rest: pip finds no {torch} for it")
        return
    # the core first, which must do without any extra
    environment.install(*constraints, wheel)
    print(environment.run("python", "-c", USES, "compiled"), end="")
    environment.run("attent", "doctor")
    environment.install(*constraints, f"{wheel}[cli]")
    environment.run("attent", "walk", "the cat sat")
    if is_oldest:
        _demo(environment)
        _test(environment, checkout, constraints)
    for plain in (pure, sdist):
        environment.install("--no-deps", "--force-reinstall", plain)
        print(environment.run("python", "-c", USES, "plain"), end="")
        environment.run("attent", "walk", "the cat sat")


def _wheel_of_this_machine(environment: Environment, dist: Path) -> Path:
    """Return the wheel that pip would take."""
    choose = (
        "import sys; from pip._vendor.packaging.tags import sys_tags; from pip._vendor.packaging.utils import "
        "parse_wheel_filename; names = sys.argv[1:]; tags = list(sys_tags()); "
        "print(min((tags.index(t), n) for n in names for t in parse_wheel_filename(n)[3] if t in tags)[1])"
    )
    names = [file.name for file in dist.glob("*.whl")]
    printed = environment.run("python", "-c", choose, *names)
    assert printed
    return dist / printed.strip()


def _demo(environment: Environment) -> None:
    begin = time.monotonic()
    report = environment.run("attent", "doctor")
    assert report and "compiled, running for" in report, report
    environment.run("attent", "demo")
    print(f"attent demo: {time.monotonic() - begin:.0f} s")


def _test(environment: Environment, checkout: Path, constraints: tuple[str, ...]) -> None:
    """Run the tests of the library with the installed wheel, not with the checkout's package."""
    environment.install(*constraints, "pytest", "hypothesis", "jaxtyping", "beartype", "numpy", "scipy")
    environment.variables["PYTHONPATH"] = str(checkout / "scripts")
    command = [
        "python",
        "-m",
        "pytest",
        "-q",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
        "-p",
        "wheelhouse.entry_points",
    ]
    command += ["-o", "pythonpath=scripts benchmarks examples", "--rootdir", str(checkout), *TESTS]
    printed = environment.run(*command, cwd=checkout)
    assert printed
    print(*printed.splitlines()[-3:], sep="\n")
    if NOT_CALLED in printed:
        raise SystemExit("tests must call every function of the library: see wheelhouse.trying.TESTS")
