from __future__ import annotations

import pytest
from gallery.encoder import Reading
from gallery.heads import SIGNS, kinds


def test_what_heads_look_at_by_habit_is_told(habits: Reading) -> None:
    shares = {name: kind[0].tolist() for name, kind in kinds(habits).items()}
    assert set(shares) == set(SIGNS)
    assert [shares[name][0] for name in ("the previous token", "itself", "the next token")] == [1.0, 0.0, 0.0]
    assert [shares[name][1] for name in ("the previous token", "itself", "the next token")] == [0.0, 1.0, 0.0]
    # only the first word stands one piece behind [CLS]
    assert shares["[CLS]"][0] == pytest.approx(1 / 3)
    assert [share[2] for share in shares.values()] == pytest.approx([0.2] * 5)
