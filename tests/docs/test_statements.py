"""The statements of introductions are all there, and each has what to type and what comes of it."""

from __future__ import annotations

from typing import Any

# Of five introductions to attention, counted once.
STATEMENTS = 85


def test_every_statement_is_tried(statements: Any) -> None:
    rows = [block for block in statements.blocks if block.language == "row"]
    assert len(rows) == STATEMENTS
    assert all(row.text and row.result for row in rows)


def test_most_statements_run_whenever_the_tests_do(statements: Any) -> None:
    """The others quote a page; what trains for minutes is on those pages."""
    run = [
        block
        for block in statements.blocks
        if block.language == "row" and not block.text.startswith("[") and "slow" not in block.marks
    ]
    assert len(run) > STATEMENTS / 2
