"""Options of the scripts that make corpora; a wrong one, or a corpus that cannot be made, is one line of error."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn


class CorpusOptions(argparse.ArgumentParser):
    """The parser of a script that makes a corpus, with --out and --seed.

    Args:
        description: the docstring of the script.
    """

    def __init__(self, description: str | None) -> None:
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.add_argument("--out", type=Path, required=True, help="output folder")
        self.add_count("--seed", 0, "seed of the corpus", minimum=0)

    def add_count(self, name: str, default: int, help_text: str, *, minimum: int = 1) -> None:
        """Add an option for a whole number."""
        self.add_argument(name, type=at_least(minimum), default=default, help=f"{help_text}; {default:,} unless given")

    def error(self, message: str) -> NoReturn:
        """Print the message in one line, and exit with code 2."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def at_least(minimum: int) -> Callable[[str], int]:
    """Return a function that reads a whole number which is at least this one."""

    def number(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}, got {value}")
        return value

    return number
