"""Glossaries of commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attent.errors import ArgumentError

if TYPE_CHECKING:
    from attent.tasks.translation.glossary import Glossary
    from attent.text.tokenizer import Tokenizer


def read_terms(path: Path, tokenizer: Tokenizer) -> Glossary:
    """Read a glossary for a run.

    Args:
        path: of the file.
        tokenizer: of the run's target.

    Raises:
        ArgumentError: the run cannot write a term.
        DataError: the file cannot be read, or a line is no term.
    """
    from attent.tasks.translation.glossary import read_glossary
    from attent.tasks.translation.term_search import check_terms

    glossary = read_glossary(path)
    try:
        check_terms(glossary, tokenizer)
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from error
    return glossary
