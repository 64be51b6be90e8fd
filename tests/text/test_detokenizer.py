from __future__ import annotations

import sys

import pytest

from attent.errors import ArgumentError
from attent.text.units import Detokenizer


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "a dog , a cat and a man 's hat .", "A dog, a cat and a man's hat."),
        ("en", "NASA 's dogs", "NASA's dogs"),
        ("de-AT", "ein hund und 3 % . er schläft .", "Ein hund und 3%. Er schläft."),
        ("fr", "l' homme , qu' il a vu .", "L'homme, qu'il a vu."),
        ("zh", "我 爱 你 ， 中国 。", "我爱你，中国。"),
        ("en", "", ""),
    ],
)
def test_words_are_joined_as_the_language_writes_them(language: str, text: str, expected: str) -> None:
    pytest.importorskip("sacremoses", reason="detokenizing needs sacremoses")
    assert Detokenizer(language)(text) == expected


def test_it_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(ArgumentError, match=r"^--detokenize needs sacremoses: pip install 'attent\[detokenize\]' \("):
        Detokenizer("en")
