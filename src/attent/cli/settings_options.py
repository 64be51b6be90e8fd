"""Options of commands, read off settings classes: each field is an option, with its type, bounds, default and help.

A command takes a settings object as one parameter. A parameter annotated with a dataclass becomes an option for each
field, and the command receives the object. A parameter annotated with `Offer`, of a class that is slow to import or of
which only some fields are offered, receives the values that were given, as `Given`.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from importlib import import_module
from typing import Annotated, Any, Generic, Literal, TypeVar

import typer

from attent.errors import ArgumentError
from attent.setting import Bound, Flag, Help

Settings = TypeVar("Settings")
# Makes what a command receives of the values of its options.
Collect = Callable[[dict[str, Any]], Any]
# The bounds of a number in messages, by their names in pydantic.
BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


@dataclass(frozen=True)
class Given(Generic[Settings]):
    """The values of settings that were given to a command; the others keep their defaults.

    Attributes:
        kind: the class of the settings, a pydantic model.
        values: by the name of the setting.
        options: the option of each setting.
    """

    kind: type[Settings]
    values: Mapping[str, Any]
    options: Mapping[str, str]

    def settings(self, **values: Any) -> Settings:
        """Return the settings with the values that were given, and with these.

        Raises:
            ArgumentError: a value cannot be used, or two do not go together.
        """
        from pydantic import ValidationError

        try:
            return self.kind(**{**self.values, **values})
        except ValidationError as error:
            raise ArgumentError(self._message(error.errors()[0])) from error

    def _message(self, fault: Any) -> str:
        """Return the message about the first fault, by its option where it is about a single one."""
        context = fault.get("ctx", {})
        limits = [f"{words} {context[bound]:g}" for bound, words in BOUNDS.items() if bound in context]
        limits = ["a finite number"] if fault["type"] == "finite_number" else limits
        if not limits or not fault["loc"]:
            return fault["msg"].removeprefix("Value error, ")
        return f"{self.options[fault['loc'][0]]} must be {limits[0]}, got {fault['input']}"


@dataclass(frozen=True)
class Offer:
    """The settings of a class that a command offers as options, all `None` unless given.

    Args:
        module: of the class, imported when the command is called or shows its help.
        name: of the class.
        settings: names of its fields; all of them if neither these nor options are named.
        options: names of further fields, and of their options.
        overrides: whether the values replace those of other settings, such as a recipe's. Then no defaults are shown,
            and the command line refuses values out of bounds; else `Given.settings` does.
    """

    module: str
    name: str
    settings: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    overrides: bool = False


@dataclass(frozen=True)
class _Setting:
    """A field of a settings class: its name, the type of its option, its default, and what it says of itself."""

    name: str
    kind: Any
    default: Any
    help: Help
    bound: Bound
    flag: Flag

    def option(self, name: str, default: Any, variable: str | None = None) -> inspect.Parameter:
        """Return the parameter that typer makes this option of.

        Args:
            name: of the parameter.
            default: of the parameter; MISSING if the option is required.
            variable: the environment variable that the option may be set by.
        """
        text = self.help.text
        if default is None and self.default not in (None, MISSING, ()):
            text = f"{text}  [default: {self.default}]"
        kind = self.kind | None if default is None else self.kind
        names = self.flag.names or ((f"--{name.replace('_', '-')}",) if kind is bool else ())
        minimum, maximum = self.bound.minimum, self.bound.maximum
        option = typer.Option(*names, help=text, metavar=self.help.metavar, min=minimum, max=maximum, envvar=variable)
        default = inspect.Parameter.empty if default is MISSING else default
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
        )


def expanded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command whose parameters of settings are an option for each field, as typer reads it."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    collectors: dict[str, Collect] = {}
    for parameter in signature.parameters.values():
        offer = next((part for part in getattr(parameter.annotation, "__metadata__", ()) if type(part) is Offer), None)
        if offer is not None:
            options, collectors[parameter.name] = _offered(offer)
        elif isinstance(parameter.annotation, type) and is_dataclass(parameter.annotation):
            options, collectors[parameter.name] = _whole(parameter.annotation)
        else:
            options = [_single(parameter)]
        parameters += [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]

    @functools.wraps(command)
    def call(**values: Any) -> Any:
        return command(
            **{name: collectors[name](values) if name in collectors else values[name] for name in signature.parameters}
        )

    call.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _whole(kind: type[Any]) -> tuple[list[inspect.Parameter], Collect]:
    """Return the options of a dataclass, and the function that makes the object of their values."""
    settings = [setting for setting in _settings(kind) if setting.help.text]
    prefix = getattr(kind, "variables", None)

    def collect(values: dict[str, Any]) -> Any:
        chosen = {setting.name: values[setting.name] for setting in settings}
        lists = {setting.name: tuple(chosen[setting.name] or ()) for setting in settings if setting.default == ()}
        return kind(**chosen | lists)

    options = []
    for setting in settings:
        variable = None if prefix is None else f"{prefix}{setting.name.upper()}"
        default = None if setting.default == () else setting.default
        options.append(setting.option(setting.name, default, variable))
    return options, collect


def _single(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter as typer reads it, which is one setting or is written for typer already."""
    plain, facts = _plain(parameter.annotation)
    if not any(isinstance(fact, Help) for fact in facts):
        return parameter
    default = MISSING if parameter.default is inspect.Parameter.empty else parameter.default
    setting = _setting(parameter.name, plain, default, facts)
    return setting.option(parameter.name, default)


def _offered(offer: Offer) -> tuple[list[inspect.Parameter], Collect]:
    """Return the options of an offer, and the function that makes a `Given` of their values."""
    kind = getattr(import_module(offer.module), offer.name)
    offered = {*offer.settings, *offer.options}
    flags: dict[str, str] = {}
    options: dict[str, inspect.Parameter] = {}
    for setting in _settings(kind):
        if offered and setting.name not in offered:
            continue
        short_name = setting.name.replace("maximum", "max").replace("minimum", "min")
        name = offer.options.get(setting.name, short_name)
        flags[setting.name] = f"--{name.replace('_', '-')}"
        default = False if setting.kind is bool and not setting.flag.names else None
        changed = {"default": None} if offer.overrides else {"bound": Bound()}
        options[setting.name] = replace(setting, **changed).option(name, default)

    def collect(values: dict[str, Any]) -> Given[Any]:
        chosen = {name: values[option.name] for name, option in options.items()}
        return Given(kind, {name: value for name, value in chosen.items() if value is not options[name].default}, flags)

    return list(options.values()), collect


def _settings(kind: type[Any]) -> Iterator[_Setting]:
    """Yield the fields of a dataclass or of a pydantic model."""
    hints = typing.get_type_hints(kind, include_extras=True)
    for name, (default, facts) in _defaults(kind).items():
        plain, more = _plain(hints[name])
        yield _setting(name, plain, default, [*more, *facts])


def _defaults(kind: type[Any]) -> dict[str, tuple[Any, list[Any]]]:
    """Return the default of each field of a dataclass or of a pydantic model, and what pydantic's field says of it."""
    models: dict[str, Any] | None = getattr(kind, "model_fields", None)
    if models is None:
        return {entry.name: (entry.default, []) for entry in fields(kind)}
    return {
        name: (
            MISSING if entry.is_required() else entry.get_default(),
            [*entry.metadata, Help(sentence(entry.description or ""))],
        )
        for name, entry in models.items()
    }


def _setting(name: str, kind: Any, default: Any, facts: Sequence[Any]) -> _Setting:
    """Return a setting by the facts that its annotation or pydantic's field has."""
    minimum, maximum = (
        next((getattr(fact, end) for fact in facts if hasattr(fact, end)), None) for end in ("ge", "le")
    )
    return _Setting(
        name,
        kind,
        default,
        Help(
            next((fact.text for fact in facts if isinstance(fact, Help) and fact.text), ""),
            next((fact.metavar for fact in facts if isinstance(fact, Help) and fact.metavar), None),
        ),
        next((fact for fact in facts if isinstance(fact, Bound)), Bound(minimum, maximum)),
        next((fact for fact in facts if isinstance(fact, Flag)), Flag()),
    )


def sentence(text: str) -> str:
    """Return a description as a sentence."""
    return text and f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def _plain(annotation: Any) -> tuple[Any, list[Any]]:
    """Return the type of an option for the type of a setting, and what the annotation says beside it.

    Of a union that is the last type but None; a tuple of any length is a list, and what the command line has no type
    for is text.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        plain, facts = _plain(arguments[0])
        return plain, [*facts, *(fact for part in arguments[1:] for fact in (part, *getattr(part, "metadata", ())))]
    if origin in (typing.Union, types.UnionType):
        return _plain([part for part in arguments if part is not types.NoneType][-1])
    if origin is tuple and Ellipsis in arguments:
        return list[arguments[0]], []
    return (annotation, []) if origin in (Literal, list) or isinstance(annotation, type) else (str, [])
