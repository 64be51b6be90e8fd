from __future__ import annotations

import importlib.util
import os
import subprocess
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


def test_parts_are_found_by_reading_the_folder(folder: str) -> None:
    actual = registry.parts(folder, leave_out=("table",))
    package = sys.modules[folder]
    assert list(actual) == ["hard", "top_k"]
    assert [part.__name__ for part in actual.values()] == ["Hard", "TopK"]
    assert registry.parts(package, leave_out=("table",)) == actual
    assert [part for part in vars(package).values() if isinstance(part, type)] == [*actual.values()]
    table = registry.with_aliases(actual)
    assert registry.find("normalizer", "sparse", table) is registry.find("normalizer", "top_k", table) is package.TopK


def test_a_file_without_its_class_is_noticed(folder: str) -> None:
    with pytest.raises(ArgumentError, match=r"table\.py must define the class Table"):
        registry.parts(folder)


def test_ones_own_part_is_named_by_module_and_class() -> None:
    assert registry.find("score", "collections:OrderedDict", {}) is OrderedDict
    assert [registry.is_imported(name) for name in ("scaled_dot", "my.module:Class", ":")] == [False, True, True]
    for path in ("no.such.module:Part", "collections:NoSuchClass"):
        with pytest.raises(ArgumentError, match=f"score '{path}' cannot be imported: "):
            registry.find("score", path, {})
    with pytest.raises(ArgumentError, match="write your own score with a colon, mypart:Diag"):
        registry.find("score", "mypart.Diag", {"dot": int})


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


@pytest.mark.parametrize("package", [scores, normalizers, masks, positions, weightings])
def test_an_unknown_name_lists_the_known_ones(package: ModuleType) -> None:
    kind = package.__name__.rpartition(".")[2].removesuffix("s")
    table = registry.with_aliases(registry.parts(package))
    message = rf"^unknown {kind} 'nothing'.* \(known: {', '.join(sorted(table))}\)$"
    with pytest.raises(UnknownNameError, match=message):
        registry.find(kind, "nothing", table)
