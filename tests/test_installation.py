from __future__ import annotations

import importlib.metadata

import pytest

from attent.installation import examine


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
