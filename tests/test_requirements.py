from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from attent.errors import AttentError, VersionError
from attent.installation import examine
from attent.requirements import OLDEST, check_version, is_older

ROOT = Path(__file__).parents[1]


def test_versions_are_compared_as_numbers_with_those_of_the_package() -> None:
    assert is_older("2.4.0+cpu", "2.11") and is_older("4.57.1", "5.0")
    for version in ("2.11", "2.11.0a0+git1", "3.0", "unknown"):
        assert not is_older(version, "2.11")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = {*project["dependencies"], *project["optional-dependencies"]["transformers"]}
    assert {f"{package}>={version}" for package, version in OLDEST.items()} <= required


def test_an_old_version_is_one_clear_line() -> None:
    with pytest.raises(VersionError, match=r"^attent needs transformers 5\.0 or newer, got 4\.57\.1: pip [^\n]*$"):
        check_version("transformers", "4.57.1")
    assert issubclass(VersionError, ImportError) and issubclass(VersionError, AttentError)


@pytest.mark.parametrize("use", ["attent.attend", "attent.views", "from attent.training import loop"])
def test_without_pytorch_a_line_names_it(use: str) -> None:
    code = f"import sys\nsys.modules['torch'] = None\nimport attent\n{use}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    says = "attent needs torch 2.11 or newer, which is not installed: pip install 'torch>=2.11'"
    assert done.stderr.splitlines()[-1] == f"attent.errors.VersionError: {says}"


def test_old_transformers_are_told_of_where_they_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers", reason="integrations need transformers")
    from attent.integrations.transformers import register
    from attent.tasks import pretrained

    monkeypatch.setattr(transformers, "__version__", "4.57.1")
    for use in (register, lambda: pretrained.load(tmp_path)):
        with pytest.raises(VersionError, match=r"^attent needs transformers 5\.0 or newer, got 4\.57\.1"):
            use()


def test_what_is_not_installed_or_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "torch>=99.1",
        "nowhere-to-be-had>=1.2",
        'numpy>=1; extra == "plot"',
        'attent[plot]; extra == "explore"',
        'numpy>=1; platform_system != "Windows" and extra == "explore"',
        'nothing-like-it>=3; extra == "onnx"',
        'attent[explore,onnx]; extra == "serve"',
        "x; extra == 'dev'",
    ]
    monkeypatch.setattr(importlib.metadata, "requires", lambda package: lines)
    findings = examine()
    assert findings.lines[1].endswith(", nowhere-to-be-had missing")
    assert findings.lines[2].split(maxsplit=1) == ["extras", "explore, plot"]
    assert findings.lines[3].split(maxsplit=3)[:3] == ["missing", "onnx,", "serve"]
    too_old, missing = findings.problems
    assert too_old.startswith("torch 2") and too_old.endswith(" is too old: pip install --upgrade 'torch>=99.1'")
    assert missing == "nowhere-to-be-had is not installed: pip install --upgrade 'nowhere-to-be-had>=1.2'"
