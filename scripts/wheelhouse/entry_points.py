"""A plugin for pytest: the functions of the compiled library that tests called, and an error if one is missing."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

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
    """Print how often each function was called."""
    terminalreporter.write_line(f"{len(calls)} functions of the library called {sum(calls.values()):,} times")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a function was not called."""
    from attent.ops import native

    optional = set() if native.has_amx() else OPTIONAL
    if missing := set(native.SIGNATURES) - set(calls) - optional:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print("not called:", ", ".join(sorted(missing)))
