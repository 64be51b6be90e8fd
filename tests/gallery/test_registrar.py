from __future__ import annotations

from gallery import registrar


def test_a_stranger_is_missing_exactly_and_answered_softly() -> None:
    plate = registrar.plate({"Ada Quill": "mathematics", "Ben Okafor": "physics", "Chiara Lund": "physics"})
    exact, inverse, soft = ([label.get_text() for label in axes.get_yticklabels()] for axes in plate.drawing.axes[:3])
    assert exact == ["Chiara Lund → physics 1.00", "Ada Quill → mathematics 1.00", "Zoe Park → missing"]
    assert inverse[0] == "physics → Ben Okafor 0.50"
    assert soft[2].startswith("Zoe Park → physics")
    assert "*chiara lunt* puts 1.000 on Chiara Lund" in plate.words.seen
