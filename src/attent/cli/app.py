"""The commands together, and how every one of them fails: one line on standard error, exit code 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from attent.cli.commands import CommandFolder
from attent.cli.output import one_line, say, speak_utf8
from attent.errors import AttentError, DeviceError

OK, UNREAD, FAILED, INTERRUPTED = 0, 1, 2, 130
# When set, an error that none of our checks foresaw shows where it arose.
TRACEBACK = "ATTENT_TRACEBACK"
# The error about how a command was called, of which typer exports one kind alone.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class Attent(TyperGroup):
    """The group of all commands, found in their folder."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        commands: Any = CommandFolder()
        self.commands = commands


# Without rich's markup help is printed in a tenth of the time.
app = typer.Typer(
    cls=Attent,
    name="attent",
    help="Attention you can swap, see and scale.",
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def version(asked: bool) -> None:
    """Print the version and stop."""
    if asked:
        from importlib.metadata import PackageNotFoundError
        from importlib.metadata import version as installed

        try:
            print(f"attent {installed('attent')}")
        except PackageNotFoundError:
            print("attent, not installed")
        raise typer.Exit()


@app.callback()
def root(version: bool = typer.Option(False, "--version", callback=version, is_eager=True, help="Print the version and stop.")) -> None:
    """Attention you can swap, see and scale."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: those of the process unless given.

    Returns:
        The exit code: 0; 1 if nobody reads on; 2 after an error, said in one line on standard error; 130 after Ctrl-C.
    """
    speak_utf8()
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        code = get_command(app).main(arguments, "attent", standalone_mode=False)
        # a closed standard output is none
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
        # A reader that has had enough, as `head` has, wants no complaint; nor may Python write what is left when it ends.
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except OSError as error:
        return _failed(f"{error.filename}: {error.strerror}" if error.filename else error)
    except Exception as error:
        # what none of our checks foresaw: still one line; the rest is for whoever mends it
        if os.environ.get(TRACEBACK):
            raise
        return _failed(f"unexpected {type(error).__name__}: {error} (set {TRACEBACK}=1 to see where)")
    if code == INTERRUPTED:
        say("attent: interrupted")
    return code if isinstance(code, int) else OK


def _failed(error: object) -> int:
    say(f"attent: {one_line(error)}")
    return FAILED
