"""The subcommands of `attent`, one module each, found by listing this folder and imported when needed.

A module holds a function or a `typer.Typer` with the name of the module; a name that Python reserves ends in "_".

A parameter with a `Help` in its annotation becomes an option. A dataclass gives an option for each field that has a
`Help`, and an `Offer` gives the options that it lists. If a dataclass has a prefix in `variables`, environment
variables can set its options too.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated, Any, Literal, NamedTuple

import typer
from typer.main import get_group

from attent.cli.options import Given, Offer
from attent.errors import MissingExtraError
from attent.setting import Flag, Help

# The order of commands in the help; any others follow by name.
MODELS = ("demo", "train", "import", "quantize", "vectors")
TEXTS = ("translate", "fill", "answer", "generate", "classify", "caption", "score", "align")
USES = (*TEXTS, "evaluate", "calibrate", "ablate", "patch", "export")
VIEWS = ("show", "explore", "serve", "runs", "describe", "walk", "learn", "data", "doctor")
ORDER = (*MODELS, *USES, *VIEWS)
# Builds a command's argument from the values of its options.
Collect = Callable[[dict[str, Any]], Any]


class CommandFolder(Mapping[str, Any]):
    """A mapping of names to commands, each imported when it is looked up."""

    def __init__(self) -> None:
        self._modules = {module.name.removesuffix("_"): module.name for module in iter_modules(__path__)}
        self.names = sorted(sorted(self._modules), key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, name: str) -> Any:
        if name not in self.names:
            raise KeyError(name)
        command, app = self._find(name), typer.Typer(rich_markup_mode=None)
        if isinstance(command, typer.Typer):
            for subcommand in command.registered_commands:
                assert subcommand.callback is not None
                subcommand.callback = expanded(subcommand.callback)
            app.add_typer(command, name=name)
        else:
            app.command(name)(expanded(command))
        return get_group(app).commands[name]

    def help_of(self, name: str) -> str:
        """Return the help of a command, or the extra that it needs and this installation lacks."""
        try:
            command = self._find(name)
        except MissingExtraError as error:
            return str(error)
        return (command.info.help if isinstance(command, typer.Typer) else inspect.getdoc(command)) or ""

    def _find(self, name: str) -> Any:
        return getattr(import_module(f"{__name__}.{self._modules[name]}"), self._modules[name])


def expanded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command as typer reads it, with its settings objects expanded into one option per field."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    collectors: dict[str, Collect] = {}
    for parameter in signature.parameters.values():
        kind, facts = _plain(parameter.annotation)
        offer = next((fact for fact in facts if isinstance(fact, Offer)), None)
        if offer is not None:
            options, collectors[parameter.name] = _offered_options(offer)
        elif isinstance(kind, type) and is_dataclass(kind):
            options, collectors[parameter.name] = _dataclass_options(kind)
        elif any(isinstance(fact, Help) for fact in facts):
            default = MISSING if parameter.default is inspect.Parameter.empty else parameter.default
            options = [_option(_Setting(parameter.name, kind, default, facts), parameter.name, default)]
        else:
            # already an argument or option of typer
            options = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        parameters += options

    @functools.wraps(command)
    def call(**values: Any) -> Any:
        return command(
            **{name: collectors[name](values) if name in collectors else values[name] for name in signature.parameters}
        )

    call.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


class _Setting(NamedTuple):
    """A field of a settings class: its name, the type of its option, its default, and its annotation's metadata."""

    name: str
    kind: Any
    default: Any
    facts: Sequence[Any]

    def first(self, *names: str) -> Any:
        """Return the first nonempty value of these attributes in the metadata; None if there is none."""
        values = (getattr(fact, name, None) for fact in self.facts for name in names)
        return next((value for value in values if value not in (None, "")), None)


def _option(setting: _Setting, name: str, default: Any, variable: str | None = None) -> inspect.Parameter:
    """Return the parameter that typer turns into an option.

    Args:
        setting: the setting.
        name: name of the option.
        default: default of the option; MISSING if it is required.
        variable: environment variable that can set the option.
    """
    kind = setting.kind | None if default is None else setting.kind
    option = typer.Option(
        *(setting.first("names") or ([f"--{name.replace('_', '-')}"] if kind is bool else [])),
        help=setting.first("text") or "",
        metavar=setting.first("metavar"),
        min=setting.first("minimum", "ge"),
        max=setting.first("maximum", "le"),
        envvar=variable,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default,
        annotation=Annotated[kind, option],
    )


def _dataclass_options(kind: type[Any]) -> tuple[list[inspect.Parameter], Collect]:
    """Return the options of a dataclass, and a function that builds the object from their values."""
    settings = [setting for setting in _settings(kind) if setting.first("text")]
    lists = {setting.name for setting in settings if setting.default == ()}
    prefix = getattr(kind, "variables", None)

    def collect(values: dict[str, Any]) -> Any:
        chosen = {setting.name: values[setting.name] for setting in settings}
        return kind(**chosen | {name: tuple(chosen[name] or ()) for name in lists})

    return [
        _option(
            setting,
            setting.name,
            None if setting.name in lists else setting.default,
            None if prefix is None else f"{prefix}{setting.name.upper()}",
        )
        for setting in settings
    ], collect


def _offered_options(offer: Offer) -> tuple[list[inspect.Parameter], Collect]:
    """Return the options of an offer, and a function that builds a `Given` from their values."""
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
        default = False if setting.kind is bool and not setting.first("names") else None
        if not offer.overrides:
            text = setting.first("text") or ""
            if default is None and setting.default not in (None, MISSING, ()):
                text = f"{text}  [default: {setting.default}]"
            # `Given.settings` checks bounds
            others = [fact for fact in setting.facts if isinstance(fact, Flag) or getattr(fact, "metavar", None)]
            setting = setting._replace(facts=[Help(text), *others])
        options[setting.name] = _option(setting, name, default)

    def collect(values: dict[str, Any]) -> Given[Any]:
        chosen = {name: values[option.name] for name, option in options.items()}
        return Given(kind, {name: value for name, value in chosen.items() if value is not options[name].default}, flags)

    return list(options.values()), collect


def _settings(kind: type[Any]) -> Iterator[_Setting]:
    """Yield the fields of a dataclass or a pydantic model."""
    hints = typing.get_type_hints(kind, include_extras=True)
    for name, entry in getattr(kind, "model_fields", {}).items():
        plain, facts = _plain(hints[name])
        default = MISSING if entry.is_required() else entry.get_default()
        yield _Setting(name, plain, default, [*facts, *entry.metadata, Help(sentence(entry.description or ""))])
    for entry in fields(kind) if is_dataclass(kind) else ():
        plain, facts = _plain(hints[entry.name])
        yield _Setting(entry.name, plain, entry.default, facts)


def sentence(text: str) -> str:
    """Return a description with a capital first letter and a period."""
    return text and f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def _plain(annotation: Any) -> tuple[Any, list[Any]]:
    """Return the type of a setting's option, and the metadata of its annotation.

    A union becomes its last type other than None, a tuple of any length a list, and a type that the command line does
    not support `str`.
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
