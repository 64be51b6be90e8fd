from __future__ import annotations

import json
import pickle
import re

import pydantic
import pytest
import torch

from attent import errors

CLASSES = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.AttentError)
]


def made(kind: type[errors.AttentError], message: str, name: str, known: list[str]) -> errors.AttentError:
    return kind("score", name, known) if kind is errors.UnknownNameError else kind(message)


@pytest.mark.parametrize("kind", CLASSES)
def test_errors_survive_pickling_and_are_no_longer_than_a_screen(kind: type[errors.AttentError]) -> None:
    """Worker processes hand their errors over pickled."""
    error = made(kind, "expected 3, got 5", "aditive", ["dot", "additive"])
    reread = pickle.loads(pickle.dumps(error))
    assert type(reread) is kind
    assert (str(reread), vars(reread)) == (str(error), vars(error))
    message = str(made(kind, f"begin {'a' * 10**5} remedy", "a" * 10**5, ["b" * 10**5] * 3))
    assert len(message) == errors.MAX_MESSAGE
    assert message.startswith(("unknown score 'a", "begin a"))
    assert message.endswith(("b)", "a remedy"))


def test_a_wrong_value_is_a_value_error_and_others_are_none() -> None:
    assert issubclass(errors.ArgumentError, ValueError) and issubclass(errors.DataError, ValueError)
    for kind in (errors.ImplementationError, errors.StaleMapError, errors.RunError):
        assert not issubclass(kind, ValueError)


def test_an_unknown_name_lists_the_known_and_the_nearest_if_any() -> None:
    near, far = (errors.UnknownNameError("score", name, ["dot", "additive"]) for name in ("aditive", "xyz"))
    assert str(near) == "unknown score 'aditive'; did you mean 'additive'? (known: additive, dot)"
    assert str(far) == "unknown score 'xyz' (known: additive, dot)"


@pytest.mark.parametrize(
    "value", [[[True] * 1000] * 1000, dict.fromkeys(range(1000), "a" * 1000), "a" * 10**6, torch.randn(99, 99)]
)
def test_a_value_is_shown_in_a_line(value: object) -> None:
    displayed = errors.brief(value)
    assert len(displayed) < 1500
    assert "\n" not in displayed


def test_a_small_value_is_shown_as_it_is() -> None:
    for value in (1.5, "x", None, (1, 2), [3], {"a": True}, torch.tensor([1, 2])):
        assert errors.brief(value) == repr(value)


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
def test_characters_that_a_terminal_would_obey_are_escaped(text: str, displayed: str) -> None:
    assert errors.printable(text) == displayed
    # JSON stays the same JSON
    value = {"a": f"{text}\\u001b"}
    assert json.loads(errors.printable(json.dumps(value, ensure_ascii=False))) == value


def test_the_docstring_draws_the_tree() -> None:
    """Each class stands in the drawing, four columns right of its base, below it."""
    drawn: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"([│├└─ ]*)(\w+Error)\b", line):
            column, name = len(match[1]), match[2]
            base = next((second for index, second in reversed(drawn) if index == column - 4), None)
            assert base is None or getattr(errors, name).__bases__[0] is getattr(errors, base)
            drawn.append((column, name))
    assert {name for _, name in drawn} == {kind.__name__ for kind in CLASSES}


def test_the_first_fault_has_its_key_where_there_is_one() -> None:
    class Settings(pydantic.BaseModel):
        width: int = 1

        @pydantic.model_validator(mode="after")
        def _odd(self) -> Settings:
            if self.width % 2 == 0:
                raise ValueError(f"Width must be odd, got {self.width}")
            return self

    for values, message in (
        ({"width": "x"}, "width: input should be a valid integer"),
        ({"width": 2}, "width must be odd, got 2"),
    ):
        with pytest.raises(pydantic.ValidationError) as caught:
            Settings.model_validate(values)
        assert errors.first_fault(caught.value).startswith(message)


def test_refuse_raises_the_error_of_the_first_rule_that_applies() -> None:
    errors.refuse((False, "first"), (0, "second"), kind=errors.DataError)
    with pytest.raises(errors.DataError, match=r"^second$"):
        errors.refuse((False, "first"), (1, "second"), (True, "third"), kind=errors.DataError)


def test_reraise_converts_the_named_errors_alone() -> None:
    class Size(pydantic.BaseModel):
        width: int

    with (
        pytest.raises(errors.RunError, match=r"^a file cannot be read: No such file$") as caught,
        errors.reraise(errors.RunError, "a file cannot be read", OSError, errors.DataError),
    ):
        raise FileNotFoundError(2, "No such file", "a file")
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    with (
        pytest.raises(errors.RunError, match=r"^a file: width: input should be a valid integer"),
        errors.reraise(errors.RunError, "a file", pydantic.ValidationError),
    ):
        Size.model_validate({"width": "wide"})
    with pytest.raises(KeyError), errors.reraise(errors.RunError, "a file", OSError):
        raise KeyError("width")
