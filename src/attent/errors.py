"""Every exception that attent raises at its public edges.

AttentError
├── ArgumentError (also ValueError)      a value that cannot be used, said with what was expected
│   ├── ShapeError                       a tensor of the wrong shape
│   ├── DTypeError                       a tensor of the wrong type of number
│   ├── DeviceError                      a device that is not there, or tensors on different ones
│   ├── UnknownNameError                 a name that no part, preset, key or locale bears
│   └── MissingArgumentError             a part with parameters, asked for by its bare name
├── PartError (also AssertionError)       a part of one's own that does not hold what its slot asks
├── UnseenError (also KeyError)          a module that a watched model has no map of
├── ImplementationError                  an implementation asked for by name that cannot serve this call
├── StaleMapError                        an attention map whose queries, keys or parameters were changed in place since
├── DataError (also ValueError)          text, a corpus or a tokenizer that cannot be read
└── RunError                             a run folder that is missing, damaged, written by a newer version or in another's use
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class AttentError(Exception):
    """The root of the tree; the command line prints it as one line and exits with code 2."""


class ArgumentError(AttentError, ValueError):
    """A value that cannot be used."""


class ShapeError(ArgumentError):
    """A tensor of the wrong shape: what was expected and what came."""


class DTypeError(ArgumentError):
    """A tensor of the wrong type of number: what was expected and what came."""


class DeviceError(ArgumentError):
    """A device that this machine does not have, or tensors that lie on different ones."""


class UnknownNameError(ArgumentError):
    """A name that nothing bears; the message lists the known ones and the nearest.

    Args:
        kind: what the name should have named, such as "score".
        name: the name that came.
        known: the names there are.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        super().__init__(f"unknown {kind} {name!r}{hint} (known: {', '.join(names)})")
        self.kind, self.name, self.known = kind, name, tuple(names)

    def __reduce__(self) -> tuple[type[UnknownNameError], tuple[str, str, tuple[str, ...]]]:
        return (type(self), (self.kind, self.name, self.known))


def first_fault(error: Any) -> str:
    """The first fault that a pydantic ValidationError lists: its key, where there is one, and what is wrong with it."""
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
    """A part that has parameters or a value without default was asked for by its bare name."""


class PartError(AttentError, AssertionError):
    """A part of one's own that does not hold what its slot asks: which check, and the figures."""


class UnseenError(AttentError, KeyError):
    """A module that a watched model has no map of; the message names the nearest that it has."""

    def __str__(self) -> str:
        # a KeyError puts its message in quotes
        return str(self.args[0])


class ImplementationError(AttentError):
    """An implementation was asked for by name and cannot serve this call; the message says why."""


class StaleMapError(AttentError):
    """An attention map is looked at after a tensor that it was made of was changed in place."""


class DataError(AttentError, ValueError):
    """Text, a corpus or a tokenizer that cannot be read: the file and the line where there is one."""


class RunError(AttentError):
    """A run folder that is missing, damaged, written by a newer version, or in the use of another process."""


@contextmanager
def needs(need: str, extra: str, kind: type[AttentError] = AttentError) -> Iterator[None]:
    """Import optional packages in the block, or say by which extra of ours they are installed.

    Args:
        need: the beginning of the message, such as "pictures need matplotlib".
        extra: the name of the extra.
        kind: of the error.
    """
    try:
        yield
    except ImportError as error:
        raise kind(f"{need}: pip install 'attent[{extra}]' ({error})") from error
