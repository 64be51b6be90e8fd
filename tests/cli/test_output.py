from __future__ import annotations

import io
import sys

import pytest

from attent.cli.output import one_line, say, speak_utf8, use_color, write


def test_a_message_is_one_line() -> None:
    assert one_line("two\n  lines ") == "two lines"


def test_output_is_utf8_and_names_that_are_not_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = [io.BytesIO(), io.BytesIO()]
    for name, stream in zip(("stdout", "stderr"), written, strict=True):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(stream, encoding="cp1252", newline="\r\n"))
    speak_utf8()
    print("█caf\udce9", flush=True)
    say("█caf\udce9")
    assert [stream.getvalue() for stream in written] == ["█caf\\udce9\n".encode()] * 2


@pytest.mark.parametrize(
    ("terminal", "variables", "coloured"), [(True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False)]
)
def test_colour_is_for_terminals(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, variables: dict[str, str], coloured: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert bool(use_color()) is coloured


def test_no_terminal_obeys_what_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    write("a\t\x1b[2J\nb")
    say("\x9b31mc")
    assert capsys.readouterr() == ("a\t\\u001b[2J\nb\n", "\\u009b31mc\n")
