"""Look-up of parts by name: name → file → class.

A part is named after its file, and its class is that name in camel case ("scaled_dot" → attention/scores/scaled_dot.py
→ ScaledDot). A class may list other names from the literature in `aliases`. A part outside the package is written
"my.module:Class".
"""

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from attent.errors import ArgumentError, check_known, refuse

# Folders searched for modules of parts, after Python's own path.
_extra_path: list[str] = []


def class_name(name: str) -> str:
    """Return the class name for a part's file name: "top_k" → "TopK"."""
    return "".join(word.capitalize() for word in name.split("_"))


def parts(package: ModuleType | str, *, leave_out: tuple[str, ...] = ()) -> dict[str, type[Any]]:
    """Import every part in a package, and return the classes by file name, in alphabetical order.

    Each class becomes an attribute of the package and can be imported from there.

    Args:
        package: the package, such as `attent.attention.scores`, or its dotted name.
        leave_out: names of files that do not contain a part.
    """
    module = importlib.import_module(package) if isinstance(package, str) else package
    classes: dict[str, type[Any]] = {}
    for info in sorted(pkgutil.iter_modules(module.__path__), key=lambda info: info.name):
        if info.name not in leave_out and not info.ispkg:
            file = importlib.import_module(f"{module.__name__}.{info.name}")
            if not hasattr(file, class_name(info.name)):
                raise ArgumentError(f"{file.__file__} must define the class {class_name(info.name)}")
            classes[info.name] = getattr(file, class_name(info.name))
            setattr(module, class_name(info.name), classes[info.name])
    return classes


def with_aliases(classes: dict[str, type[Any]]) -> dict[str, type[Any]]:
    """Return the classes by file name and by alias."""
    return classes | {alias: part for part in classes.values() for alias in getattr(part, "aliases", ())}


def is_imported(name: str) -> bool:
    """Return whether a name has the form "my.module:Class", whose look-up runs that module's code."""
    return ":" in name


def find(kind: str, name: str, table: dict[str, type[Any]]) -> type[Any]:
    """Return the class with a name.

    Args:
        kind: the kind of part, such as "score"; used in messages.
        name: a part's name, an alias, or "my.module:Class".
        table: the classes by name.

    Raises:
        UnknownNameError: no part has this name; the message lists all names.
        ArgumentError: "my.module:Class" cannot be imported, or has a dot instead of the colon.
    """
    if is_imported(name):
        return _imported(kind, name)
    module, dot, attribute = name.rpartition(".")
    reason = f"{kind} {name!r} is not a valid name; write your own {kind} with a colon, {module}:{attribute}"
    refuse((dot and name not in table, reason))
    check_known(kind, name, table)
    return table[name]


@contextmanager
def current_folder_searched() -> Iterator[None]:
    """Also search the current folder for modules of parts, as `python -m` does.

    It is searched after Python's own path, and for parts only. `python -P`, which excludes the current folder, also
    disables this.
    """
    _extra_path[:] = [] if sys.flags.safe_path else [""]
    try:
        yield
    finally:
        _extra_path.clear()


def _imported(kind: str, path: str) -> type[Any]:
    module, _, attribute = path.partition(":")
    extra_path = [folder for folder in _extra_path if folder not in sys.path]
    sys.path.extend(extra_path)
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ArgumentError(f"{kind} {path!r} cannot be imported: {error}") from error
    # a user's module may raise anything
    except Exception as error:
        raise ArgumentError(
            f"{kind} {path!r} cannot be imported: {module} raises {type(error).__name__}: {error}"
        ) from error
    finally:
        for folder in extra_path:
            sys.path.remove(folder)
