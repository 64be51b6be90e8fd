"""Exceptions of attent's public interface, the checks that raise them, and helpers for quoting values in messages.

AttentError
├── ArgumentError (also ValueError)      a value that cannot be used; the message says what was expected
│   ├── ShapeError                       a tensor of the wrong shape
│   ├── DTypeError                       a tensor of the wrong dtype
│   ├── DeviceError                      a missing device, or tensors on different devices
│   ├── UnknownNameError                 an unknown name of a part, preset, key or locale
│   └── MissingArgumentError             a part given by name only although it needs arguments
├── PartError (also AssertionError)       a user's part that breaks the contract of its slot
├── UnseenError (also KeyError)          a module of a watched model that has no map
├── ImplementationError                  a requested implementation that cannot compute this call
├── StaleMapError                        an attention map whose queries, keys or parameters were changed in place
├── DataError (also ValueError)          text, a corpus or a tokenizer that cannot be read
├── VersionError (also ImportError)      a library that is missing or too old
├── MissingExtraError (also ImportError) a package of an extra that is not installed
└── RunError                             a run folder that is missing, damaged, too new, or in use elsewhere
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from reprlib import Repr
from typing import Any, TypeVar

__all__ = [
    "ArgumentError",
    "AttentError",
    "DTypeError",
    "DataError",
    "DeviceError",
    "ImplementationError",
    "MissingArgumentError",
    "MissingExtraError",
    "PartError",
    "RunError",
    "ShapeError",
    "StaleMapError",
    "UnknownNameError",
    "UnseenError",
    "VersionError",
]

Function = TypeVar("Function", bound=Callable[..., Any])
# Replaces the middle of a shortened text.
GAP = " … "
# Maximum length of a message in characters; lists of known names in an UnknownNameError are the longest.
MAX_MESSAGE = 4000
# Characters kept at the end of a message, which often holds the remedy.
END = MAX_MESSAGE // 4
_VALUES = Repr()
_VALUES.maxlevel, _VALUES.maxstring, _VALUES.maxother = 2, 200, 200
# C0 except tab and line feed, plus delete and C1
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class AttentError(Exception):
    """Base class of all exceptions of attent; the command line prints the message as one line and exits with code 2.

    Messages may quote long input, so the middle of a message longer than `MAX_MESSAGE` characters is left out.
    """

    def __init__(self, *args: object) -> None:
        begin = MAX_MESSAGE - END - len(GAP)
        super().__init__(*(shortened(part, begin, END) if isinstance(part, str) else part for part in args))


def brief(value: object) -> str:
    """Return the `repr` of a value on one line, at most a few hundred characters long.

    Long collections are cut after the first items.
    """
    return " ".join(_VALUES.repr(value).split())


class ArgumentError(AttentError, ValueError):
    """A value that cannot be used."""


class ShapeError(ArgumentError):
    """A tensor of the wrong shape; the message gives the expected shape and the actual one."""


class DTypeError(ArgumentError):
    """A tensor of the wrong dtype; the message gives the expected dtype and the actual one."""


class DeviceError(ArgumentError):
    """A device that this machine does not have, or tensors on different devices."""


class UnknownNameError(ArgumentError):
    """An unknown name; the message lists the known names and suggests the closest one.

    Args:
        kind: the kind of thing that the name stands for, such as "score".
        name: the unknown name.
        known: all known names.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        super().__init__(f"unknown {kind} {brief(name)}{did_you_mean(name, names)} (known: {', '.join(names)})")
        self.kind, self.name, self.known = kind, name, tuple(names)

    def __reduce__(self) -> tuple[type[UnknownNameError], tuple[str, str, tuple[str, ...]]]:
        return (type(self), (self.kind, self.name, self.known))


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Return a suggestion of the closest known name, to append to a message; empty if none is close."""
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def check_known(kind: str, name: str | None, names: Collection[str]) -> None:
    """Raise an UnknownNameError unless the name is None or a known one."""
    if name is not None and name not in names:
        raise UnknownNameError(kind, name, names)


def refuse_keywords(remedies: Mapping[str, str]) -> Callable[[Function], Function]:
    """Reject keyword arguments known from other libraries, with a message that says what to use instead.

    Args:
        remedies: what to use instead of each keyword, by its name.

    Raises (the decorated function):
        ArgumentError: it was called with one of these keywords.
    """

    def accept(function: Function) -> Function:
        @functools.wraps(function)
        def checked(*args: Any, **keywords: Any) -> Any:
            for name, remedy in remedies.items():
                if name in keywords:
                    raise ArgumentError(f"{function.__qualname__} takes no {name}: {remedy}")
            return function(*args, **keywords)

        return checked  # pyright: ignore[reportReturnType]

    return accept


def first_fault(error: Any) -> str:
    """Return the first fault in a pydantic ValidationError: the key, if there is one, and the message."""
    fault = error.errors()[0]
    message = fault["msg"].removeprefix("Value error, ")
    return ": ".join(filter(None, (".".join(map(str, fault["loc"])), f"{message[:1].lower()}{message[1:]}")))


def check_index(name: str, number: int, count: int) -> int:
    """Return an index after checking that it is in range.

    Raises:
        ArgumentError: the index is negative, or not below `count`.
    """
    if not 0 <= number < count:
        raise ArgumentError(f"{name} must be from 0 to {count - 1}, got {number}")
    return number


class MissingArgumentError(ArgumentError):
    """A part given by name only although it has learned parameters or a required argument."""


class PartError(AttentError, AssertionError):
    """A user's part that breaks the contract of its slot; the message names the failed check, with numbers."""


class UnseenError(AttentError, KeyError):
    """A module of a watched model that has no map; the message suggests the closest name that has one."""

    def __str__(self) -> str:
        # KeyError.__str__ would put the message in quotes
        return str(self.args[0])


class ImplementationError(AttentError):
    """A requested implementation that cannot compute this call; the message says why."""


class StaleMapError(AttentError):
    """An attention map whose queries, keys or parameters were changed in place since it was made."""


class DataError(AttentError, ValueError):
    """Text, a corpus or a tokenizer that cannot be read; the message names the file, and the line if there is one."""


class RunError(AttentError):
    """A run folder that is missing, damaged, written by a newer version, or in use by another process."""


class VersionError(AttentError, ImportError):
    """A library that is missing or too old for attent; the message names the required version."""


class MissingExtraError(AttentError, ImportError):
    """A package that is not installed; the message names the extra that installs it."""


def first_reason(*rules: tuple[object, str]) -> str | None:
    """Return the message of the first rule (condition, message) whose condition is true; None without any."""
    return next((message for applies, message in rules if applies), None)


def refuse(*rules: tuple[object, str], kind: Callable[[str], Exception] = ArgumentError) -> None:
    """Raise an error, by default an ArgumentError, with the message of the first rule that applies.

    A rule is a pair (condition, message); it applies if the condition is true. `kind` makes the error of a message.
    """
    if (message := first_reason(*rules)) is not None:
        raise kind(message)


@contextmanager
def reraise(kind: Callable[[str], Exception], beginning: object, *classes: type[Exception]) -> Iterator[None]:
    """Convert errors raised in the block into another, whose message is a beginning, a colon and the reason.

    Args:
        kind: makes the new error of its message.
        beginning: the beginning of the message, such as the path of a file.
        classes: the classes of the errors to convert, among which may be pydantic's ValidationError.
    """
    try:
        yield
    except classes as error:
        reason = first_fault(error) if hasattr(error, "errors") else getattr(error, "strerror", None) or error
        raise kind(f"{beginning}: {reason}") from error


@contextmanager
def needs(need: str, extra: str, kind: type[AttentError] = MissingExtraError) -> Iterator[None]:
    """Import optional packages in the block; if one is missing, raise an error that names the extra to install.

    Args:
        need: the beginning of the message, such as "pictures need matplotlib".
        extra: the name of the extra.
        kind: the class of the error.
    """
    try:
        yield
    except ImportError as error:
        raise kind(f"{need}: in a clone of attent, pip install '.[{extra}]' ({error})") from error


def printable(text: str) -> str:
    r"""Escape control characters as in JSON (`\u001b`), so that a terminal does not interpret them.

    Tabs and line feeds are kept.
    """
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shortened(message: str, begin: int = 240, end: int = 80) -> str:
    """Leave out the middle of a long message, such as one that repeats its input.

    Args:
        message: the message, of any length.
        begin: number of characters to keep at the beginning.
        end: number of characters to keep at the end.
    """
    return message if len(message) <= begin + len(GAP) + end else f"{message[:begin]}{GAP}{message[-end:]}"
