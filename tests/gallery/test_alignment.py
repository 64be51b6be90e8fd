from __future__ import annotations

from pathlib import Path

import pytest
from gallery import alignment, runs
from gallery.alignment import first

from attent.text.text import Pair


def test_the_first_pair_of_a_locale_that_is_neither_short_nor_long() -> None:
    pairs = [
        Pair("de | 3.3.26", ""),
        Pair("fr | mardi 3 mars 2026", ""),
        Pair("de | Dienstag, 3. März 2026", ""),
        Pair("de | " + "x" * 40, ""),
    ]
    assert first(pairs, "de") is pairs[2]
    assert first(pairs, "el") is None


@pytest.mark.slow
def test_a_run_of_a_few_updates_is_drawn_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "JUDGED", 20)
    run = runs.run(runs.DATES_RNN, tmp_path, updates=2)
    assert runs.run(runs.DATES_RNN, tmp_path) == run
    plate = alignment.plate(run)
    assert len(plate.drawing.axes) == len(alignment.SHOWN) + 1
    assert "`de | " in plate.words.seen
    assert all(axes.patches for axes in plate.drawing.axes[: len(alignment.SHOWN)])
