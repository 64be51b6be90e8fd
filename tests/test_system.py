from __future__ import annotations

import ctypes
import types

import pytest

from attent.cli.output import speak_utf8


def test_consoles_of_windows_are_told_to_interpret_escape_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[tuple[int, int]] = []
    kernel = types.SimpleNamespace(GetStdHandle=abs, SetConsoleMode=lambda *mode: modes.append(mode))
    monkeypatch.setattr(ctypes, "windll", types.SimpleNamespace(kernel32=kernel), raising=False)
    speak_utf8()
    assert modes == []
    monkeypatch.setattr("attent.system.IS_WINDOWS", True)
    speak_utf8()
    assert modes == [(11, 7), (12, 7)]
