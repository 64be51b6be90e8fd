from __future__ import annotations

import pickle
import re

import pydantic
import pytest
import torch

from attent import errors

CLASSES = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.AttentError)
]


def example(kind: type[errors.AttentError]) -> errors.AttentError:
    return (
        kind("score", "aditive", ["dot", "additive"]) if kind is errors.UnknownNameError else kind("expected 3, got 5")
    )


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_survives_pickling(kind: type[errors.AttentError]) -> None:
    """Worker processes hand their errors over pickled."""
    error = example(kind)
    reread = pickle.loads(pickle.dumps(error))
    assert type(reread) is kind
    assert str(reread) == str(error)
    assert vars(reread) == vars(error)


@pytest.mark.parametrize("kind", [errors.ArgumentError, errors.DataError])
def test_a_wrong_value_is_a_value_error_too(kind: type[errors.AttentError]) -> None:
    assert issubclass(kind, ValueError)


@pytest.mark.parametrize("kind", [errors.ImplementationError, errors.StaleMapError, errors.RunError])
def test_other_errors_are_no_value_errors(kind: type[errors.AttentError]) -> None:
    assert not issubclass(kind, ValueError)


def test_an_unknown_name_lists_the_known_and_the_nearest() -> None:
    error = example(errors.UnknownNameError)
    assert str(error) == "unknown score 'aditive'; did you mean 'additive'? (known: additive, dot)"


def test_an_unknown_name_far_from_all_has_no_nearest() -> None:
    assert str(errors.UnknownNameError("score", "xyz", ["dot"])) == "unknown score 'xyz' (known: dot)"


@pytest.mark.parametrize("kind", CLASSES)
def test_no_message_is_longer_than_a_screen(kind: type[errors.AttentError]) -> None:
    names = (
        ["score", "a" * 10**5, ["b" * 10**5] * 3]
        if kind is errors.UnknownNameError
        else [f"begin {'a' * 10**5} remedy"]
    )
    message = str(kind(*names))
    assert len(message) == errors.MAX_MESSAGE
    assert message.startswith("unknown score 'a" if kind is errors.UnknownNameError else "begin a")
    assert message.endswith("b)" if kind is errors.UnknownNameError else "a remedy")


@pytest.mark.parametrize(
    "value", [[[True] * 1000] * 1000, dict.fromkeys(range(1000), "a" * 1000), "a" * 10**6, torch.randn(99, 99)]
)
def test_a_value_is_shown_in_a_line(value: object) -> None:
    displayed = errors.brief(value)
    assert len(displayed) < 1500
    assert "\n" not in displayed


@pytest.mark.parametrize("value", [1.5, "x", None, (1, 2), [3], {"a": True}, torch.tensor([1, 2])])
def test_a_small_value_is_shown_whole(value: object) -> None:
    assert errors.brief(value) == repr(value)


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
