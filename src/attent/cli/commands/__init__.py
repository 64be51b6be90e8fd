"""The commands of `attent`, one module each, found by reading this folder and imported when needed.

A module holds a function or a `typer.Typer` called as the module is, with "_" behind a name that Python reserves. It
may also have `Command`, the class of the command.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import typer
from typer.main import get_group

from attent.cli.settings_options import expanded

# The order of the help, in which a person needs them; other commands follow by name.
ORDER = (
    *(
        "demo",
        "train",
        "average",
        "import",
        "quantize",
        "translate",
        "fill",
        "generate",
        "classify",
        "score",
        "align",
        "evaluate",
        "ablate",
    ),
    *("export", "vectors", "show", "explore", "serve", "describe", "walk", "data", "bench", "compare", "doctor"),
)


class CommandFolder(Mapping[str, Any]):
    """The commands by name, each imported when it is looked up."""

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
        (module, command), app = self._find(name), typer.Typer(rich_markup_mode=None)
        if isinstance(command, typer.Typer):
            for subcommand in command.registered_commands:
                assert subcommand.callback is not None
                subcommand.callback = expanded(subcommand.callback)
            app.add_typer(command, name=name)
        else:
            app.command(name, cls=getattr(module, "Command", None))(expanded(command))
        return get_group(app).commands[name]

    def help_of(self, name: str) -> str:
        """Return the help of a command."""
        _, command = self._find(name)
        help_ = command.info.help if isinstance(command, typer.Typer) else inspect.getdoc(command)
        return help_ or ""

    def _find(self, name: str) -> tuple[Any, Any]:
        module = import_module(f"{__name__}.{self._modules[name]}")
        return module, getattr(module, self._modules[name])
