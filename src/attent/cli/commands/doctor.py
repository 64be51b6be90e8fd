"""attent doctor: versions, devices, kernels and folders of this installation, on one screen."""

from typing import Annotated

import typer

from attent.cli.output import report_installation
from attent.setting import Help


def doctor(
    report: Annotated[
        bool, Help("Print it as Markdown to paste into an issue, without the names of your home folder and user.")
    ] = False,
) -> None:
    """Show this installation: versions, extras, devices, the compiled extension, the processor's row, and folders.

    The exit code is 0 unless a required library is missing or too old, or the extension does not load.
    """
    raise typer.Exit(report_installation(report))
