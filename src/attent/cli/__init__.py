"""The command `attent`: a file for each of its commands, which import what is slow to import when they run."""

from __future__ import annotations


def main() -> None:
    """Run the command with the arguments that it was called with."""
    from attent.cli.app import run

    raise SystemExit(run())
