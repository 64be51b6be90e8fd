"""The command with all its subcommands, each of which fails with one line on standard error and exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from attent.cli.commands import CommandFolder
from attent.cli.output import one_line, say, speak_utf8
from attent.errors import AttentError, DeviceError
from attent.registry import current_folder_searched

OK, UNREAD, FAILED, INTERRUPTED = 0, 1, 2, 130
# When set, an unexpected error shows its traceback.
TRACEBACK = "ATTENT_TRACEBACK"
# Click's error about a wrong call; typer exports only subclasses of it.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class Attent(TyperGroup):
    """The group of all commands, found in their folder."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        commands: Any = CommandFolder()
        self.commands = commands

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the first sentence of each command, whose options need not be read for that."""
        commands: Any = self.commands
        limit = formatter.width - 6 - max(map(len, commands))
        lines = [TyperCommand(name, help=commands.help_of(name)).get_short_help_str(limit) for name in commands]
        with formatter.section("Commands"):
            formatter.write_dl(list(zip(commands, lines, strict=True)))


# Without rich's markup help is printed in a tenth of the time.
app = typer.Typer(
    cls=Attent,
    name="attent",
    help="Attention you can swap, see and scale.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def version(is_set: bool) -> None:
    """Print the version and stop."""
    if is_set:
        from importlib.metadata import PackageNotFoundError
        from importlib.metadata import version as installed

        try:
            print(f"attent {installed('attent')}")
        except PackageNotFoundError:
            print("attent, not installed")
        raise typer.Exit()


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=version, is_eager=True, help="Print the version and stop."
    ),
) -> None:
    """Attention you can swap, see and scale."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: those of the process unless given.

    Returns:
        The exit code: 0; 1 if the reader of the output is gone; 2 after an error, with one line on standard error; 130
        after Ctrl-C.
    """
    speak_utf8()
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        # parts of one's own are named by the user, or come with a run that is trusted
        with current_folder_searched():
            code = get_command(app).main(arguments, "attent", standalone_mode=False, obj=arguments)
        # standard output may be closed
        if sys.stdout is not None:
            sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except DeviceError as error:
        from attent.training.distributed import is_local_main_process

        return _failed(error) if is_local_main_process() else FAILED
    except AttentError as error:
        return _failed(error)
    except UsageError as error:
        return _failed(error.format_message())  # pyright: ignore[reportAttributeAccessIssue]
    except BrokenPipeError:
        # `head` and others close the pipe early: no message, and Python must not flush the rest at its end
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except OSError as error:
        return _failed(f"{error.filename}: {error.strerror}" if error.filename else error)
    except Exception as error:
        # unexpected: still one line, unless a traceback is wanted
        if os.environ.get(TRACEBACK):
            raise
        return _failed(f"unexpected {type(error).__name__}: {error} (set {TRACEBACK}=1 to see where)")
    if code == INTERRUPTED:
        say("attent: interrupted")
    return code if isinstance(code, int) else OK


def _failed(error: object) -> int:
    say(f"attent: {one_line(error)}")
    return FAILED
