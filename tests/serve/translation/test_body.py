"""Parameters of requests."""

import pytest

from attent.serve.translation.body import count_of, flag_of, texts_of
from attent.serve.translation.errors import RequestError


@pytest.mark.parametrize(("value", "number"), [("3", 3), (3, 3), ("", 0), (None, 0), ("0", 0)])
def test_numbers(value: object, number: int) -> None:
    assert count_of({"alternatives": value}, "alternatives", 5) == number


@pytest.mark.parametrize("value", ["1_0", "-1", "1.5", True, [], {}, "9" * 5_000, "²"])
def test_what_is_no_number_is_said(value: object) -> None:
    with pytest.raises(RequestError, match=r"alternatives parameter is not a number|must be <= 5"):
        count_of({"alternatives": value}, "alternatives", 5)


def test_flags() -> None:
    assert [flag_of({"alignment": value}, "alignment") for value in (True, "true", "1", False, "false", "")] == [True] * 3 + [False] * 3
    assert not flag_of({}, "alignment")


def test_texts() -> None:
    assert texts_of({"q": "a"}) == (["a"], False)
    assert texts_of({"q": ["a", ""]}) == (["a", ""], True)
    for value in (None, "", 1, [1], {"a": 1}):
        with pytest.raises(RequestError):
            texts_of({"q": value})
