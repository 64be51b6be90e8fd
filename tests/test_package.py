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
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


# A part of each slot, whose file is all there is of it.
NEW_PARTS = {
    "scores": ("Score", "def forward(self, query, key): return query @ key.transpose(-2, -1)"),
    "normalizers": ("Normalizer", "def normalize(self, scores): return scores.softmax(-1)"),
    "masks": ("Mask", "def allowed(self, pairs): return pairs.query_index[:, None] + pairs.key_index >= 0"),
    "positions": ("Position", "rotates = True\n    def rotate(self, features, positions): return features"),
    "weightings": ("Weighting", "def factors(self, pairs): return pairs.key_index.new_ones(1).float()"),
}
# Importing does no work; an old PyTorch is said in one line; folders are reached from the root, and what single uses
# need is not imported for others; new parts are found.
NEW_PROCESS = """
import attent, sys
assert not [name for name in sys.modules if name.startswith("attent.")]
attent.errors.ShapeError
assert not {"torch", "numpy"} & set(sys.modules)

import torch
version, torch.__version__ = torch.__version__, "2.4.0"
for code in ("import attent; attent.attend", "import attent.models.build", "from attent.attention import masks"):
    try:
        exec(code)
    except ImportError as error:
        print(type(error).__name__, error)
from attent.cli.app import run
print(run(["describe", "."]))
torch.__version__ = version

attent.attention, attent.models
import attent.tasks.evaluation, attent.tasks.loading, attent.tasks.recipe
assert not {"babel", "sacrebleu", "sentencepiece", "torch._dynamo"} & set(sys.modules)

from attent.attention import choices, masks, normalizers, positions, scores, weightings
from attent.attention.masks import NewMasks
from attent.attention.weightings import NewWeightings
for name in ("masks", "normalizers", "positions", "scores", "weightings"):
    assert "New" + name.title() in dir(globals()[name])
query = torch.randn(1, 2, 3, 4)
names = {"score": "new_scores", "normalizer": "new_normalizers", "mask": "new_masks", "position": "new_positions"}
context = attent.attend(query, query, query, weighting=NewWeightings(), **names)
torch.testing.assert_close(context, attent.attend(query, query, query, score="dot"))
"""


def test_a_new_process_with_new_parts_and_an_old_torch(tmp_path: Path) -> None:
    (tmp_path / "attent").mkdir()
    for path in PACKAGE.iterdir():
        if path.name != "attention":
            (tmp_path / "attent" / path.name).symlink_to(path)
    # with what Python has compiled
    shutil.copytree(PACKAGE / "attention", tmp_path / "attent" / "attention")
    for slot, (base, body) in NEW_PARTS.items():
        lines = f"from attent.attention.base import {base}\n\n\nclass New{slot.title()}({base}):\n    {body}\n"
        (tmp_path / "attent" / "attention" / slot / f"new_{slot}.py").write_text(lines, encoding="utf-8")
    command, environment = [sys.executable, "-c", NEW_PROCESS], os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    says = "attent needs torch 2.11 or newer, got 2.4.0: pip install --upgrade 'torch>=2.11'"
    assert done.stderr == f"attent: {says}\n"
    assert done.stdout.splitlines() == [*[f"VersionError {says}"] * 3, "2"]
    assert done.returncode == 0


def test_the_public_names_are_listed_and_no_others() -> None:
    assert {name for name in dir(attent) if not name.startswith("__")} == {*attent.__all__} - {"__version__"}
    assert all(getattr(attent, name) is not None for name in attent.__all__)
    assert attent.__version__ == importlib.metadata.version("attent") == PROJECT["version"]
    with pytest.raises(AttributeError, match="'atend'"):
        _ = attent.atend
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    stated = dict(re.findall(r'^(version|license): "?([^"\n]+)"?$', citation, re.MULTILINE))
    assert stated == {"version": PROJECT["version"], "license": PROJECT["license"]}


def test_type_checkers_see_the_same_names() -> None:
    body = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")).body
    (checked,) = (node for node in body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: node.module for node in imports for alias in node.names}
    assert homes == {**attent._HOMES, **dict.fromkeys(attent._MODULES, "attent")}
    assert {*homes, "__version__"} == set(attent.__all__)


def test_the_installed_command_helps() -> None:
    command = shutil.which("attent", path=str(Path(sys.executable).parent))
    assert command is not None, "attent is not installed beside this interpreter: run scripts/install dev"
    assert b"translate" in subprocess.run([command, "--help"], capture_output=True, check=True).stdout


def test_every_extra_that_is_asked_for_is_there() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    texts = [file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py")]
    requests = {name for text in texts for name in re.findall(r"attent\[([a-z]\w*)\]", text)}
    requests |= set(re.findall(r"\| `\[(\w+)\]` \|", page))
    assert requests == PROJECT["optional-dependencies"].keys() - {"dev"}


def test_no_message_asks_pip_for_what_is_not_on_the_index() -> None:
    files = [*PACKAGE.rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]
    asking = re.compile(r"pip install '?attent")
    assert not [file for file in files if asking.search(file.read_text(encoding="utf-8"))]


def built(copy: Path, **environment: str) -> set[str]:
    """The names in a wheel built from a copy, so that the checkout stays clean, and not optimized, to save time."""
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (copy / "pyproject.toml").write_text(project.replace('"-O3"', '"-O0"'), encoding="utf-8")
    shutil.copytree(PACKAGE, copy / "src" / "attent", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    # An isolated build would fetch setuptools; where it is installed already, nothing need be fetched.
    recent = (
        importlib.util.find_spec("setuptools") and int(importlib.metadata.version("setuptools").split(".")[0]) >= 77
    )
    command = [sys.executable, "-m", "build", "--wheel", *(["--no-isolation"] if recent else []), str(copy)]
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


def test_a_wheel_holds_every_file_and_is_built_without_a_compiler_too(wheel: set[str]) -> None:
    files = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".so", ".pyd")
    }
    assert {"attent/py.typed", "attent/ops/csrc/tanh_score.cpp"} < files
    assert {name for name in wheel if ".dist-info/" not in name} == files
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel)


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
