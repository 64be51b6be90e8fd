"""The command with all its subcommands; an error prints one line to standard error and exits with code 2."""

import os
import sys
from collections.abc import Sequence
from errno import EINVAL
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from attent import system
from attent.cli.commands import CommandFolder
from attent.cli.output import one_line, say, speak_utf8
from attent.errors import AttentError, DeviceError
from attent.registry import current_folder_searched

OK, UNREAD, FAILED, INTERRUPTED = 0, 1, 2, 130
# If this environment variable is set, an unexpected error shows its traceback.
TRACEBACK = "ATTENT_TRACEBACK"
# Click's error about a wrong call; typer exports only subclasses of it.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class Attent(TyperGroup):
    """The group of all subcommands, loaded from their folder."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast(Any, CommandFolder())

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the first sentence of each command's help, without reading its options."""
        commands: Any = self.commands
        limit = formatter.width - 6 - max(map(len, commands))
        lines = [TyperCommand(name, help=commands.help_of(name)).get_short_help_str(limit) for name in commands]
        with formatter.section("Commands"):
            formatter.write_dl(list(zip(commands, lines, strict=True)))


# Help prints ten times faster without rich's markup.
app = typer.Typer(
    cls=Attent,
    name="attent",
    help="Attention you can swap, see and train.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def version(is_set: bool) -> None:
    """Print the version and exit."""
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
    version: bool = typer.Option(False, "--version", callback=version, is_eager=True, help="Print the version."),
) -> None:
    """Attention you can swap, see and train."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: the command-line arguments; the process' own unless given.

    Returns:
        The exit code: 0 for success, 1 if the output pipe was closed, 2 after an error, 130 after Ctrl-C.
    """
    speak_utf8()
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        # custom parts are named by the user, or come with a trusted run
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
    except OSError as error:
        if isinstance(error, BrokenPipeError) or (
            system.IS_WINDOWS and (error.errno, error.filename) == (EINVAL, None)
        ):
            # `head` and others close the pipe early: print no message, and keep Python from flushing the rest at exit
            if sys.stdout is not None:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return UNREAD
        return _failed(f"{error.filename}: {error.strerror}" if error.filename else error)
    except Exception as error:
        # unexpected errors also get one line, unless a traceback is requested
        if os.environ.get(TRACEBACK):
            raise
        return _failed(f"unexpected {type(error).__name__}: {error} (set {TRACEBACK}=1 to see where)")
    if code == INTERRUPTED:
        say("attent: interrupted")
    return code if isinstance(code, int) else OK


def _failed(error: object) -> int:
    say(f"attent: {one_line(error)}")
    return FAILED
