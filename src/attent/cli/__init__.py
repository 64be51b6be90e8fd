"""The `attent` command: one module per subcommand; slow imports wait until a subcommand runs."""

import sys

from attent.cli.output import report_installation, say, speak_utf8
from attent.errors import AttentError
from attent.requirements import check_extra


def main() -> None:
    """Run the command with the process' arguments; without the `cli` extra, only `attent doctor` works."""
    try:
        check_extra("cli")
    except AttentError as error:
        speak_utf8()
        if sys.argv[1:2] == ["doctor"] and sys.argv[2:] in ([], ["--report"]):
            raise SystemExit(report_installation("--report" in sys.argv)) from None
        say(f"attent: {error}")
        raise SystemExit(2) from None
    from attent.cli.app import run

    raise SystemExit(run())
