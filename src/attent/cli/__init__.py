"""The command `attent`: a file for each of its commands, which import what is slow to import when they run."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command with the arguments that it was called with."""
    # PyTorch reads it at its first tensor: pages of 2 MiB, where the system has them, so that fewer have to be given out and cleared.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    from attent.cli.app import run

    raise SystemExit(run())
