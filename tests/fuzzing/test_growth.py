from __future__ import annotations

import json

import pytest
from fuzzing.growth import Cost, growth


@pytest.mark.parametrize(
    ("seconds", "megabytes", "count"),
    [
        ((1.0, 2.0), (100.0, 200.0), 0),
        ((1.0, 2.6), (100.0, 200.0), 1),
        ((1.0, 4.0), (100.0, 400.0), 2),
        # noise, then from nothing that is noticed to much
        ((0.01, 0.2), (1.0, 20.0), 0),
        ((0.01, 2.0), (1.0, 20.0), 1),
        # what is beyond memory that was free grows in proportion, or faster
        ((0.1, 0.1), (0.0, 10.0, 26.0), 0),
        ((0.1, 0.1), (0.0, 60.0, 260.0), 1),
        # in proportion to the square; a step that is larger than what came before it
        ((0.1, 0.1), (10.0, 40.0, 160.0), 1),
        ((0.1, 0.1), (40.0, 50.0, 150.0), 1),
    ],
)
def test_costs_more_than_two_and_a_half_times_as_high_are_growth(
    seconds: tuple[float, float], megabytes: tuple[float, ...], count: int
) -> None:
    half, double = (Cost("", *pair) for pair in zip(seconds, megabytes[-2:], strict=True))
    quarter = Cost("", 0.1, megabytes[0]) if len(megabytes) == 3 else None
    assert len(growth(half, double, quarter)) == count


# Functions of one line each that are measured, and how their outcomes and faults begin.
ACTIONS = {
    "return 'rendered'": "rendered []",
    "raise DataError('no text')": "refused: no text []",
    "raise DataError('a' * 5000)": "fault: a long error",
    "raise KeyError('a')": "fault: KeyError: 'a' [\"fault: KeyError: 'a'\"]",
    "os.abort()": "fault: ended by SIGABRT",
    "data = b'a' * (500 * 2**20); return 'rendered'": "rendered ['took 4",
    "sys.modules['torch'] = sys; return 'rendered'": "fault: torch was imported",
}
# They, a reader that looks through all before for each sign, and a renderer that loses a space.
PLANTED = f"""
import json, os, sys
from attent.errors import DataError
from fuzzing import growth

for line in {list(ACTIONS)}:
    names = {{"DataError": DataError, "os": os, "sys": sys}}
    exec("def action(): " + line, names)
    cost = growth.measured(names["action"])
    print(json.dumps(f"{{cost.outcome}} {{cost.faults}}"))

def slow(content, ending):
    text = content.decode()
    for end in range(0, len(text), 50):
        sum(map(ord, text[:end]))
    return content

def faults():
    return [fault for number in range(8) for fault in growth.document_faults(1, number)[2]]

growth.render, growth.FLOORS, growth.TIMES = slow, (0.05, 24.0), 200
print(json.dumps(growth.grown(".txt of 'a'")[0]))
growth.render = lambda content, ending: content.replace(b" ", b"", 1)
print(json.dumps(any("other white space" in fault for fault in faults())))
growth.render = lambda content, ending: content
print(json.dumps(faults()))
"""


def test_faults_of_reading_documents_are_found(fuzzing) -> None:
    *outcomes, grown, changed, unchanged = map(json.loads, fuzzing(PLANTED).splitlines())
    for outcome, expected in zip(outcomes, ACTIONS.values(), strict=True):
        assert outcome.startswith(expected)
    assert "grew" in grown or "took" in grown
    assert changed is True
    assert unchanged == []
