"""Exceptions of attent's public interface, checks that raise them, and what a message may quote.

AttentError
├── ArgumentError (also ValueError)      a value that cannot be used; the message says what was expected
│   ├── ShapeError                       a tensor of the wrong shape
│   ├── DTypeError                       a tensor of the wrong type of number
│   ├── DeviceError                      a device that is not there, or tensors on different ones
│   ├── UnknownNameError                 a name that no part, preset, key or locale has
│   └── MissingArgumentError             a part with required arguments that was given by name only
├── PartError (also AssertionError)       a user's part that breaks the contract of its slot
├── UnseenError (also KeyError)          a module of a watched model that has no map
├── ImplementationError                  an implementation chosen by name that cannot compute this call
├── StaleMapError                        an attention map whose queries, keys or parameters were changed in place
├── DataError (also ValueError)          text, a corpus or a tokenizer that cannot be read
├── VersionError (also ImportError)      a library that is too old
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

Function = TypeVar("Function", bound=Callable[..., Any])
# Where the middle of a text is left out.
GAP = " … "
# Characters of a message: the names that an UnknownNameError lists take most.
MAX_MESSAGE = 4000
# The end of a message often has the remedy.
END = MAX_MESSAGE // 4
_VALUES = Repr()
_VALUES.maxlevel, _VALUES.maxstring, _VALUES.maxother = 2, 200, 200
# all of C0 but tab and line feed, delete, and C1
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class AttentError(Exception):
    """The root of the tree; the command line prints it as one line and exits with code 2.

    A message has at most `MAX_MESSAGE` characters, since it may repeat long input: the middle of a longer one is left
    out.
    """

    def __init__(self, *args: object) -> None:
        begin = MAX_MESSAGE - END - len(GAP)
        super().__init__(*(shortened(part, begin, END) if isinstance(part, str) else part for part in args))


def brief(value: object) -> str:
    """Return a value as Python writes it, in one line of a few hundred characters at most.

    Of a long list, only the first items.
    """
    return " ".join(_VALUES.repr(value).split())


class ArgumentError(AttentError, ValueError):
    """A value that cannot be used."""


class ShapeError(ArgumentError):
    """A tensor of the wrong shape: what was expected and what came."""


class DTypeError(ArgumentError):
    """A tensor of the wrong type of number: what was expected and what came."""


class DeviceError(ArgumentError):
    """A device that this machine does not have, or tensors that lie on different ones."""


class UnknownNameError(ArgumentError):
    """An unknown name; the message lists the known names and the nearest.

    Args:
        kind: of the thing to name, such as "score".
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
    """Return the part of a message that proposes the nearest of these names; empty if none is near."""
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""


def check_known(kind: str, name: str | None, names: Collection[str]) -> None:
    """Raise an UnknownNameError unless a name is among the known ones; None passes."""
    if name is not None and name not in names:
        raise UnknownNameError(kind, name, names)


def refuse_keywords(remedies: Mapping[str, str]) -> Callable[[Function], Function]:
    """Refuse keyword arguments that other libraries have and a function does not, with what to write in their place.

    Args:
        remedies: by the name of the keyword.

    Raises (the decorated function):
        ArgumentError: it is called with one of them.
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
    """Return the first fault of a pydantic ValidationError: its key, if it has one, and the message."""
    fault = error.errors()[0]
    message = fault["msg"].removeprefix("Value error, ")
    return ": ".join(filter(None, (".".join(map(str, fault["loc"])), f"{message[:1].lower()}{message[1:]}")))


def check_index(name: str, number: int, count: int) -> int:
    """Return a number that counts from 0.

    Raises:
        ArgumentError: it is below 0, or not below the count.
    """
    if not 0 <= number < count:
        raise ArgumentError(f"{name} must be from 0 to {count - 1}, got {number}")
    return number


class MissingArgumentError(ArgumentError):
    """A part with learnt parameters or a required argument that was given by name only."""


class PartError(AttentError, AssertionError):
    """A user's part that breaks the contract of its slot; the message has the check and the numbers."""


class UnseenError(AttentError, KeyError):
    """A module of a watched model that has no map; the message names the nearest module that has one."""

    def __str__(self) -> str:
        # a KeyError puts its message in quotes
        return str(self.args[0])


class ImplementationError(AttentError):
    """An implementation chosen by name that cannot compute this call; the message says why."""


class StaleMapError(AttentError):
    """An attention map whose queries, keys or parameters were changed in place since it was made."""


class DataError(AttentError, ValueError):
    """Text, a corpus or a tokenizer that cannot be read; the message names the file, and the line if there is one."""


class RunError(AttentError):
    """A run folder that is missing, damaged, written by a newer version, or in use by another process."""


class VersionError(AttentError, ImportError):
    """A library that is too old for attent; the message names the version that is needed."""


class MissingExtraError(AttentError, ImportError):
    """A package that is not installed; the message names the extra that brings it."""


def refuse(*rules: tuple[object, str]) -> None:
    """Raise an ArgumentError with the message of the first rule that applies.

    A rule is (whether it applies, the message).
    """
    for applies, message in rules:
        if applies:
            raise ArgumentError(message)


@contextmanager
def needs(need: str, extra: str, kind: type[AttentError] = MissingExtraError) -> Iterator[None]:
    """Import optional packages in the block; if one is missing, raise an error that names the extra to install.

    Args:
        need: the beginning of the message, such as "pictures need matplotlib".
        extra: the name of the extra.
        kind: class of the error.
    """
    try:
        yield
    except ImportError as error:
        raise kind(f"{need}: pip install 'attent[{extra}]' ({error})") from error


def printable(text: str) -> str:
    r"""Escape control characters as JSON does, `\u001b`, so that a terminal does not execute them.

    Tabs and line feeds stay.
    """
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shortened(message: str, begin: int = 240, end: int = 80) -> str:
    """Leave out the middle of a long message, such as one that repeats its input.

    Args:
        message: of any length.
        begin: characters to keep at its beginning.
        end: characters to keep at its end.
    """
    return message if len(message) <= begin + len(GAP) + end else f"{message[:begin]}{GAP}{message[-end:]}"
