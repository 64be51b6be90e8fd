"""The interface keeps what the list of each earlier version promises; scripts/api writes the lists."""

from __future__ import annotations

import json
import re
import runpy
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import deprecated

import attent

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def api() -> dict[str, Any]:
    for package in ("mkdocs", "sklearn", "transformers"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    return runpy.run_path(str(ROOT / "scripts" / "api"), run_name="api")


@pytest.fixture(scope="module")
def current(api: dict[str, Any]) -> dict[str, Any]:
    return api["current"]()


def test_this_version_keeps_what_earlier_ones_promise(api: dict[str, Any], current: dict[str, Any]) -> None:
    lists = api["held_against"](attent.__version__)
    assert lists, "the first list is that of 0.1.0"
    for path in lists:
        faults = api["broken"](json.loads(path.read_text(encoding="utf-8")), current)
        assert not faults, f"{path.stem} promises otherwise: " + "; ".join(faults)


def test_lists_cover_what_users_call(current: dict[str, Any]) -> None:
    python = current["python"]
    assert python["attent.attend"][:3] == ["query", "key", "value"]
    assert "mask=" in python["attent.attend"] and "*" in python["attent.attend"]
    assert {"attent.watch", "attent.AttentionMap.top", "attent.attention.scores.Cosine"} <= set(python)
    assert "attent.tasks.translation.translator.Translator.translate" in python
    assert current["commands"]["attent translate"]["--beam"] == "optional"
    assert current["commands"]["attent show"]["run"] == "required"
    assert "learning_rate" in current["settings"]["training"] and "heads" in current["settings"]["model.transformer"]
    assert {"scaled_dot", "cosine"} <= set(current["parts"]["scores"])


def test_pages_name_what_is_experimental(api: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    section = page.partition("### Experimental")[2].partition("\n#")[0]
    names = set(re.findall(r"`(attent[ .][\w.]+)", section))
    assert names == {*api["EXPERIMENTAL"], *api["EXPERIMENTAL_COMMANDS"]}


BREAKS = [
    (lambda new: new["python"].pop("attent.attend"), "attent.attend is gone"),
    (lambda new: new["python"]["attent.attend"].reverse(), "attent.attend: argument 1 is no longer query"),
    (lambda new: new["python"]["attent.attend"].remove("mask="), "attent.attend: mask is gone"),
    (lambda new: new["python"]["attent.attend"].append("speed"), "attent.attend: speed is new and required"),
    (lambda new: new["python"].update({"attent.attend": None}), "attent.attend: it cannot be called"),
    (lambda new: new["commands"].pop("attent train"), "attent train is gone"),
    (lambda new: new["commands"]["attent train"].pop("--out"), "attent train: --out is gone"),
    (lambda new: new["commands"]["attent train"].update({"--out": "required"}), "attent train: --out is required"),
    (lambda new: new["settings"]["training"].remove("seed"), "settings training: seed is gone"),
    (lambda new: new["parts"]["scores"].remove("cosine"), "parts scores: cosine is gone"),
]


@pytest.mark.parametrize(("change", "line"), BREAKS, ids=[line for _, line in BREAKS])
def test_each_break_is_found(api: dict[str, Any], current: dict[str, Any], change: Any, line: str) -> None:
    new = deepcopy(current)
    change(new)
    assert line in api["broken"](current, new)


def test_additions_break_nothing(api: dict[str, Any], current: dict[str, Any]) -> None:
    new = deepcopy(current)
    new["python"]["attent.attend"].append("speed=")
    new["python"]["attent.later"] = ["value"]
    new["commands"]["attent train"]["--speed"] = "optional"
    new["settings"]["training"].append("speed")
    assert not api["broken"](current, new)


def test_what_is_deprecated_may_go_in_the_next_minor_version(api: dict[str, Any]) -> None:
    @deprecated("since 0.2, use attent.later")
    def earlier(query: int, *, key: int = 0) -> int:
        return query + key

    with pytest.warns(DeprecationWarning, match=r"attent\.later"):
        assert earlier(1) == 1
    assert api["parameters"](earlier) == ["deprecated", "query", "*", "key="]
    old = {"python": {"attent.earlier": api["parameters"](earlier)}, "commands": {}, "settings": {}, "parts": {}}
    assert not api["broken"](old, {"python": {}, "commands": {}, "settings": {}, "parts": {}})


def test_versions_are_held_against_their_own_minor_version_and_the_one_before(
    api: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("0.1.0", "0.2.0", "0.2.1", "0.3.0"):
        (tmp_path / f"{version}.json").touch()
    monkeypatch.setitem(api["held_against"].__globals__, "LISTS", tmp_path)
    assert [path.stem for path in api["held_against"]("0.3.1")] == ["0.2.0", "0.2.1", "0.3.0"]
    assert [path.stem for path in api["held_against"]("0.1.2")] == ["0.1.0"]
