import json

import pytest

from attent.errors import printable


@pytest.mark.parametrize(
    ("text", "displayed"),
    [
        ("\x1b]0;owned\x07", r"\u001b]0;owned\u0007"),
        ("\x9b31m", r"\u009b31m"),
        ("a\rb\x7f\x00", r"a\u000db\u007f\u0000"),
        ("a\tb\nc", "a\tb\nc"),
        ("naïve ␛ 日本 👩\u200d🔬", "naïve ␛ 日本 👩\u200d🔬"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(text: str, displayed: str) -> None:
    assert printable(text) == displayed


def test_json_stays_the_same_json() -> None:
    text = "\x00\x1b[2J\x7f\x85\x9b\\u001b\t"
    assert json.loads(printable(json.dumps({"a": text}, ensure_ascii=False))) == {"a": text}
