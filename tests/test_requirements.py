from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from attent.errors import AttentError, VersionError
from attent.requirements import OLDEST, check_version, is_older

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("version", "oldest", "expected"),
    [
        ("2.4.0+cpu", "2.11", True),
        ("2.11", "2.11", False),
        ("2.11.0a0+git1", "2.11", False),
        ("3.0", "2.11", False),
        ("4.57.1", "5.0", True),
        ("5.0.0rc1", "5.0", False),
        ("unknown", "2.11", False),
    ],
)
def test_versions_are_compared_as_numbers(version: str, oldest: str, *, expected: bool) -> None:
    assert is_older(version, oldest) is expected


def test_the_oldest_versions_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = {*project["dependencies"], *project["optional-dependencies"]["transformers"]}
    assert {f"{package}>={version}" for package, version in OLDEST.items()} <= required


def test_an_old_version_is_one_clear_line() -> None:
    with pytest.raises(VersionError, match=r"^attent needs transformers 5\.0 or newer, got 4\.57\.1: pip [^\n]*$"):
        check_version("transformers", "4.57.1")
    assert issubclass(VersionError, ImportError) and issubclass(VersionError, AttentError)


OLD_TORCH = """
import torch
torch.__version__ = "2.4.0"
for code in ("import attent; attent.attend", "import attent.models.build", "from attent.attention import masks"):
    try:
        exec(code)
    except ImportError as error:
        print(type(error).__name__, error)
from attent.cli.app import run
print(run(["describe", "."]))
"""


def test_an_old_torch_is_told_of_at_import_and_by_the_command_in_one_line() -> None:
    done = subprocess.run([sys.executable, "-c", OLD_TORCH], capture_output=True, text=True, check=False)
    says = "attent needs torch 2.11 or newer, got 2.4.0: pip install --upgrade 'torch>=2.11'"
    assert done.stdout.splitlines() == [*[f"VersionError {says}"] * 3, "2"]
    assert done.stderr == f"attent: {says}\n"


def test_old_transformers_are_told_of_where_they_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers", reason="integrations need transformers")
    from attent.integrations.transformers import register
    from attent.tasks import pretrained

    monkeypatch.setattr(transformers, "__version__", "4.57.1")
    for use in (register, lambda: pretrained.load(tmp_path)):
        with pytest.raises(VersionError, match=r"^attent needs transformers 5\.0 or newer, got 4\.57\.1"):
            use()
