from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType

import pytest

from attent import registry
from attent.attention import masks, normalizers, positions, scores, weightings
from attent.errors import ArgumentError, UnknownNameError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of two parts, a file that holds none, and a folder within."""
    package = tmp_path / "slots"
    (package / "inner").mkdir(parents=True)
    (package / "inner" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "top_k.py").write_text("class TopK:\n    aliases = ('sparse',)\n", encoding="utf-8")
    (package / "hard.py").write_text("class Hard: ...\n", encoding="utf-8")
    (package / "table.py").write_text("SIZE = 3\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    # Entered first, so that what the test imports is taken out again.
    for name in ("slots", "slots.top_k", "slots.hard", "slots.table"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "slots"


@pytest.mark.parametrize(("name", "expected"), [("dot", "Dot"), ("scaled_dot", "ScaledDot"), ("entmax15", "Entmax15"), ("top_k", "TopK")])
def test_a_files_name_gives_its_class(name: str, expected: str) -> None:
    assert registry.class_name(name) == expected


def test_parts_are_found_by_reading_the_folder(folder: str) -> None:
    found = registry.parts(folder, leave_out=("table",))
    assert list(found) == ["hard", "top_k"]
    assert [part.__name__ for part in found.values()] == ["Hard", "TopK"]
    assert registry.parts(sys.modules[folder], leave_out=("table",)) == found


def test_a_file_without_its_class_is_noticed(folder: str) -> None:
    with pytest.raises(AttributeError, match="Table"):
        registry.parts(folder)


def test_an_alias_finds_the_same_class(folder: str) -> None:
    table = registry.with_aliases(registry.parts(folder, leave_out=("table",)))
    assert registry.find("normaliser", "sparse", table) is registry.find("normaliser", "top_k", table)


def test_ones_own_part_is_named_by_module_and_class() -> None:
    assert registry.find("score", "collections:OrderedDict", {}) is OrderedDict


@pytest.mark.parametrize("path", ["no.such.module:Part", "collections:NoSuchClass"])
def test_a_part_that_cannot_be_imported_is_an_argument_error(path: str) -> None:
    with pytest.raises(ArgumentError, match=f"score '{path}' cannot be imported: "):
        registry.find("score", path, {})


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown score 'dott'; did you mean 'dot'\? \(known: cosine, dot\)"):
        registry.find("score", "dott", {"dot": int, "cosine": int})


@pytest.mark.parametrize(("name", "imported"), [("dot", False), ("scaled_dot", False), ("my.module:Class", True), (":", True)])
def test_names_that_import_a_module_are_known_before_it_happens(name: str, imported: bool) -> None:
    assert registry.is_imported(name) is imported


@pytest.mark.parametrize(
    ("kind", "package"),
    [("score", scores), ("normaliser", normalizers), ("mask", masks), ("position", positions), ("weighting", weightings)],
)
def test_names_are_known_without_importing_the_parts(kind: str, package: ModuleType) -> None:
    table = registry.with_aliases(registry.parts(package))
    assert registry.known(Path(str(package.__file__)).parent) == set(table)
    for name in (*table, "my.module:Class", None):
        registry.check(kind, name)
    errors = []
    for check in (lambda: registry.check(kind, "nothing"), lambda: registry.find(kind, "nothing", table)):
        with pytest.raises(UnknownNameError) as error:
            check()
        errors.append(str(error.value))
    assert errors[0] == errors[1]
