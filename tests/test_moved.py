"""Old import paths: the same objects, with a warning that says where they are now."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from attent import moved


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No old module imported yet."""
    for name in [name for name in sys.modules if moved.new_name(name)]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("name", sorted(moved.MODULES))
def test_an_old_module_is_imported_and_says_where_it_is_now(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{name} is now {moved.MODULES[name]}"):
        old = importlib.import_module(name)
    new = importlib.import_module(moved.MODULES[name])
    public = [each for each in dir(new) if not each.startswith("_")]
    assert all(getattr(old, each) is getattr(new, each) for each in public)


@pytest.mark.usefixtures("fresh")
def test_a_module_of_an_old_package() -> None:
    with pytest.warns(DeprecationWarning) as warnings:
        from attent.attention.normalisers.softmax import Softmax  # pyright: ignore[reportMissingImports]
    from attent.attention.normalizers import Softmax as NewSoftmax

    assert Softmax is NewSoftmax
    assert len(warnings) == 2  # of the package, and of its module


@pytest.mark.filterwarnings("ignore:.* is now:DeprecationWarning")
@pytest.mark.parametrize("target", sorted(moved.OBJECTS))
def test_old_names_of_objects_are_the_new_objects(target: str) -> None:
    new = importlib.import_module(target)
    old = [importlib.import_module(name) for name in moved.MODULES if moved.MODULES[name] == target]
    assert old
    for before, now in moved.OBJECTS[target].items():
        assert all(getattr(module, before) is getattr(new, now) for module in old)


@pytest.mark.filterwarnings("ignore:.* is now:DeprecationWarning")
@pytest.mark.parametrize("name", ["attent.attention.nothing", "attent.attention.normalisers.nothing", "attent.config.nothing"])
def test_what_never_was_is_not_found(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)


def test_importing_the_package_imports_no_new_module() -> None:
    program = "import sys, attent; print([name for name in sys.modules if name.startswith('attent.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['attent.moved']"
