from __future__ import annotations

import json
from pathlib import Path

from attent.tasks.translation.translation_lines import (
    AlignedTranslation,
    LineFormat,
    LineTranslator,
    json_line,
    text_line,
)
from attent.tasks.translation.translator import load

RUN = Path(__file__).parents[2] / "frozen" / "runs" / "pairs"


def test_lines_are_numbered_from_those_before_them() -> None:
    translator, said = load(RUN), list[str]()
    translator.longest = 16
    lines = LineTranslator(translator, translator.search, said.append, translator.config, LineFormat(scores=True))
    output, is_usable = lines.translate([(7, "the dog"), (8, "the cat " * 20)])
    assert [line.split(" ||| ")[0] for line in output] == ["7", "8"] and not is_usable and not lines.is_empty
    assert len(said) == 1 and said[0].startswith("line 9: not translated: ")
    assert lines.warning is None
    lines.repetitive = [*range(1, 8)]
    assert lines.warning is not None and lines.warning.startswith("7 translations repeat themselves, line 1,2,3,4,5: ")


def test_a_translation_as_text_and_as_json() -> None:
    (translation,) = load(RUN).search(["the dog"])[0]
    aligned = AlignedTranslation("der Hund", "0-0 1-1", translation)
    assert text_line(3, aligned, has_scores=False) == "der Hund ||| 0-0 1-1"
    record = json.loads(json_line([aligned]))
    assert record["source"] == "the dog" and "error" not in record
    assert record["translations"] == [
        {
            "text": "der Hund",
            "score": translation.score,
            "log_probability": translation.log_probability,
            "length_penalty": translation.length_penalty,
            "alignment": "0-0 1-1",
        }
    ]
