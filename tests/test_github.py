""".github: forms and workflows have what GitHub requires, and call what the repository has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))


def read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_forms_have_labelled_fields_with_unique_names(path: Path) -> None:
    form = read(path)
    assert form["name"] and form["description"]
    fields = [element for element in form["body"] if element["type"] != "markdown"]
    names = [field["id"] for field in fields]
    assert len(set(names)) == len(names) > 1
    assert all(field["type"] == "textarea" and field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_form_for_faults_asks_for_the_report() -> None:
    labels = [
        element["attributes"].get("label", "") for element in read(GITHUB / "ISSUE_TEMPLATE" / "wrong.yml")["body"]
    ]
    assert any("`attent doctor --report`" in label for label in labels)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_pin_actions_and_call_what_exists(path: Path) -> None:
    text, jobs = path.read_text(encoding="utf-8"), read(path)["jobs"]
    assert "It has not run yet" in text.partition("\nname:")[0]
    steps = [step for job in jobs.values() for step in job["steps"]]
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"]) for step in steps if "uses" in step)
    commands = "\n".join(step["run"] for step in steps if "run" in step)
    assert all((ROOT / name).exists() for name in re.findall(r"\bscripts/\w+|\btests/[\w/]+\.py", commands))
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"\bmake (\w+)", commands)) <= set(targets)
    assert all("timeout-minutes" in job for job in jobs.values())
    assert read(path)["permissions"] == {"contents": "read"}
