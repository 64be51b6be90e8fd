from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType

import pytest

import attent
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


@pytest.mark.parametrize(
    ("name", "expected"), [("dot", "Dot"), ("scaled_dot", "ScaledDot"), ("entmax15", "Entmax15"), ("top_k", "TopK")]
)
def test_a_files_name_gives_its_class(name: str, expected: str) -> None:
    assert registry.class_name(name) == expected


def test_parts_are_found_by_reading_the_folder(folder: str) -> None:
    actual = registry.parts(folder, leave_out=("table",))
    assert list(actual) == ["hard", "top_k"]
    assert [part.__name__ for part in actual.values()] == ["Hard", "TopK"]
    assert registry.parts(sys.modules[folder], leave_out=("table",)) == actual


def test_a_part_is_an_attribute_of_its_folder(folder: str) -> None:
    result = registry.parts(folder, leave_out=("table",))
    package = sys.modules[folder]
    assert {name: part for name, part in vars(package).items() if isinstance(part, type)} == {
        "Hard": result["hard"],
        "TopK": result["top_k"],
    }


# A part of each slot, whose file is all there is of it.
NEW_PARTS = {
    "scores": ("Score", "def forward(self, query, key): return query @ key.transpose(-2, -1)"),
    "normalizers": ("Normalizer", "def normalize(self, scores): return scores.softmax(-1)"),
    "masks": ("Mask", "def allowed(self, pairs): return pairs.query_index[:, None] + pairs.key_index >= 0"),
    "positions": ("Position", "rotates = True\n    def rotate(self, features, positions): return features"),
    "weightings": ("Weighting", "def factors(self, pairs): return pairs.key_index.new_ones(1).float()"),
}
NEW_PARTS_IN_USE = """
import attent, torch
from attent.attention import choices, masks, normalizers, positions, scores, weightings
from attent.attention.masks import NewMasks
from attent.attention.normalizers import NewNormalizers
from attent.attention.positions import NewPositions
from attent.attention.scores import NewScores
from attent.attention.weightings import NewWeightings
modules = ("masks", "normalizers", "positions", "scores", "weightings")
assert all("New" + name.title() in dir(globals()[name]) for name in modules)
query = torch.randn(1, 2, 3, 4)
names = {"score": "new_scores", "normalizer": "new_normalizers", "mask": "new_masks", "position": "new_positions"}
found = attent.attend(query, query, query, weighting=NewWeightings(), **names)
torch.testing.assert_close(found, attent.attend(query, query, query, score="dot"))
"""


def test_a_file_is_all_that_a_new_part_of_any_slot_needs(tmp_path: Path) -> None:
    (tmp_path / "attent").mkdir()
    for path in Path(attent.__path__[0]).iterdir():
        if path.name != "attention":
            (tmp_path / "attent" / path.name).symlink_to(path)
    # with what Python has compiled
    shutil.copytree(Path(attent.__path__[0]) / "attention", tmp_path / "attent" / "attention")
    for slot, (base, body) in NEW_PARTS.items():
        lines = f"from attent.attention.base import {base}\n\n\nclass New{slot.title()}({base}):\n    {body}\n"
        (tmp_path / "attent" / "attention" / slot / f"new_{slot}.py").write_text(lines, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", NEW_PARTS_IN_USE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_file_without_its_class_is_noticed(folder: str) -> None:
    with pytest.raises(AttributeError, match="Table"):
        registry.parts(folder)


def test_an_alias_finds_the_same_class(folder: str) -> None:
    table = registry.with_aliases(registry.parts(folder, leave_out=("table",)))
    assert registry.find("normalizer", "sparse", table) is registry.find("normalizer", "top_k", table)


def test_ones_own_part_is_named_by_module_and_class() -> None:
    assert registry.find("score", "collections:OrderedDict", {}) is OrderedDict


@pytest.mark.parametrize("path", ["no.such.module:Part", "collections:NoSuchClass"])
def test_a_part_that_cannot_be_imported_is_an_argument_error(path: str) -> None:
    with pytest.raises(ArgumentError, match=f"score '{path}' cannot be imported: "):
        registry.find("score", path, {})


@pytest.mark.parametrize("code", ["class Part: ...", "Part = ("])
def test_the_current_folder_is_searched_last_where_asked_and_for_parts_alone(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_part_file.py").write_text(code, encoding="utf-8")
    (tmp_path / "ast.py").write_text("raise SystemExit", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_part_file", raising=False)
    monkeypatch.delitem(sys.modules, "ast")
    before = list(sys.path)
    with pytest.raises(ArgumentError, match="No module named 'own_part_file'"):
        registry.find("score", "own_part_file:Part", {})
    with registry.current_folder_searched():
        assert importlib.util.find_spec("own_part_file") is None
        assert registry.find("score", "ast:Name", {}).__name__ == "Name"
        if "class" in code:
            assert registry.find("score", "own_part_file:Part", {}).__module__ == "own_part_file"
        else:
            with pytest.raises(ArgumentError, match="own_part_file raises SyntaxError: '\\(' was never closed"):
                registry.find("score", "own_part_file:Part", {})
    assert sys.path == before
    monkeypatch.delitem(sys.modules, "own_part_file", raising=False)
    with pytest.raises(ArgumentError, match="No module named 'own_part_file'"):
        registry.find("score", "own_part_file:Part", {})


def test_python_that_keeps_the_current_folder_out_keeps_it_out(tmp_path: Path) -> None:
    (tmp_path / "own_part_file.py").write_text("class Part: ...", encoding="utf-8")
    lines = (
        "from attent import registry\nwith registry.current_folder_searched():\n"
        "    registry.find('score', 'own_part_file:Part', {})"
    )
    source = str(Path(registry.__file__).parents[1])
    for options, code in (((), 0), (("-P",), 1)):
        ended = subprocess.run(
            [sys.executable, *options, "-c", lines], cwd=tmp_path, env={**os.environ, "PYTHONPATH": source}, check=False
        )
        assert ended.returncode == code


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown score 'dott'; did you mean 'dot'\? \(known: cosine, dot\)"):
        registry.find("score", "dott", {"dot": int, "cosine": int})


def test_a_dot_in_the_place_of_the_colon_is_told() -> None:
    for look_up in (
        lambda: registry.check("score", "mypart.Diag"),
        lambda: registry.find("score", "mypart.Diag", {"dot": int}),
    ):
        with pytest.raises(ArgumentError, match="write your own score with a colon, mypart:Diag"):
            look_up()


@pytest.mark.parametrize(
    ("name", "imported"), [("dot", False), ("scaled_dot", False), ("my.module:Class", True), (":", True)]
)
def test_names_that_import_a_module_are_known_before_it_happens(name: str, imported: bool) -> None:
    assert registry.is_imported(name) is imported


@pytest.mark.parametrize(
    ("kind", "package"),
    [
        ("score", scores),
        ("normalizer", normalizers),
        ("mask", masks),
        ("position", positions),
        ("weighting", weightings),
    ],
)
def test_names_are_known_without_importing_the_parts(kind: str, package: ModuleType) -> None:
    table = registry.with_aliases(registry.parts(package))
    assert registry.part_names(Path(str(package.__file__)).parent) == set(table)
    for name in (*table, "my.module:Class", None):
        registry.check(kind, name)
    errors = []
    for check in (lambda: registry.check(kind, "nothing"), lambda: registry.find(kind, "nothing", table)):
        with pytest.raises(UnknownNameError) as error:
            check()
        errors.append(str(error.value))
    assert errors[0] == errors[1]
