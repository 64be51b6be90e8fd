"""A plugin for pytest: the functions of the compiled library that tests call, and those that they do not."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from wheelhouse import NOT_CALLED

# Called only on processors with matrix tiles (AMX).
OPTIONAL = {
    "attent_linear_cross_entropy_amx",
    "attent_linear",
    "attent_linear_input_gradients",
    "attent_linear_weight_gradients",
}
calls: Counter[str] = Counter()


def pytest_configure() -> None:
    """Count the calls of each function."""
    from attent.ops import native

    loaded = native.library()
    assert loaded is not None, "the wheel has no library that loads here"

    def counted(name: str, function, *arguments: object) -> object:
        calls[name] += 1
        return function(*arguments)

    for name in native.SIGNATURES:
        setattr(loaded, name, partial(counted, name, getattr(loaded, name)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how often the functions were called, and those that were not."""
    from attent.ops import native

    terminalreporter.write_line(f"{len(calls)} functions of the library called {sum(calls.values()):,} times")
    if missing := set(native.SIGNATURES) - set(calls) - (set() if native.has_amx() else OPTIONAL):
        terminalreporter.write_line(f"{NOT_CALLED} {', '.join(sorted(missing))}")
