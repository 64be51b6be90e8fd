"""The command `attent`: a file for each of its commands, which import what is slow to import when they run."""

from __future__ import annotations

import sys

from attent.cli.output import report_installation, say, speak_utf8
from attent.errors import AttentError
from attent.requirements import check_extra


def main() -> None:
    """Run the command with the arguments that it was called with; without the extra, `attent doctor` alone."""
    try:
        check_extra("cli")
    except AttentError as error:
        speak_utf8()
        if sys.argv[1:] == ["doctor"]:
            raise SystemExit(report_installation()) from None
        say(f"attent: {error}")
        raise SystemExit(2) from None
    from attent.cli.app import run

    raise SystemExit(run())
