from __future__ import annotations

import pytest

# A command that does what is planted in it, with limits that need no patience.
PLANTED = """
import os, sys, time
from pathlib import Path
from fuzzing.cases import Case
from fuzzing.fork import Limits
from fuzzing.harness import findings
from fuzzing.mutators import Mutation

def draw(number, folder, canary):
    (folder / "config.json").write_text("spoilt")
    (folder / "link").symlink_to(canary / "notes.txt")
    return Case(("describe", "run"), Mutation("config.json: spoilt", ("config.json",)))

def command(arguments):
{command}

for finding in findings([0, 1], draw, command, Path("work").absolute(), 2, Limits(seconds=1.5, megabytes=50)):
    print(finding.number, finding.faults)
"""


def of_both(faults: str) -> list[str]:
    return [f"{number} {faults}" for number in (0, 1)]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("return 0", "[]"),
        ("print('attent: config.json is damaged', file=sys.stderr); return 2", "[]"),
        ("print('line 3: too long', file=sys.stderr); return 2", "[]"),
        ("raise RecursionError('planted')", "['exit code 1', 'a traceback']"),
        ("os.abort()", "['ended by signal 6']"),
        ("time.sleep(60)", "['ran longer than 1.5 s']"),
        ("held = b'x' * (300 * 2**20); time.sleep(60)", "['took more than 50 MB']"),
        ("held = b'x' * (100 * 2**20); return 0", "['took more than 50 MB']"),
        (
            "print('attent: the file is damaged', file=sys.stderr); return 2",
            "['no culprit in the message, expected one of config.json']",
        ),
        ("print('attent: unexpected KeyError: config.json', file=sys.stderr); return 2", "['an unexpected error']"),
        (
            "print('attent: config.json', 'and more', sep='\\n', file=sys.stderr); return 2",
            "['1 error lines of 2 on standard error, expected one, the last']",
        ),
        ("return 2", "['0 error lines of 0 on standard error, expected one, the last']"),
        ("import warnings; warnings.warn('planted'); return 0", '["a warning of Python\'s"]'),
        ("print('\\x1b]0;owned\\x07'); return 0", "['a terminal escape in the output']"),
        ("Path('link').write_text('through a link'); return 0", "['changed outside its folder: canary/notes.txt']"),
        ("Path('../beside').write_text('escaped'); return 0", "['changed outside its folder: beside']"),
        ("Path('within').write_text('its own'); return 0", "[]"),
    ],
)
def test_a_planted_fault_is_noticed(fuzzing, command: str, expected: str) -> None:
    lines = fuzzing(PLANTED.replace("{command}", f"    {command}")).splitlines()
    assert sorted(lines) == of_both(expected)


# Every command as the cases have it, with nothing spoilt.
INTACT = """
from itertools import count, takewhile
from pathlib import Path
from attent.cli.app import run
from fuzzing import cases, fixtures, harness
from fuzzing.fork import Limits

harness.preload()
material = Path("material").absolute()
material.mkdir()
fixtures.write(material)
def is_last(number):
    folder = Path(f"draw{number}")
    folder.mkdir()
    return cases.intact(number, material, folder) is None

last = next(filter(is_last, count()))

def draw(number, folder, canary):
    return cases.intact(number, material, folder)

for finding in harness.findings(range(last), draw, run, material, 2, Limits()):
    if finding.faults:
        print(finding.case, finding.faults, finding.outcome.err[-500:])
print(last)
"""


@pytest.mark.slow
def test_what_is_not_spoilt_is_served(fuzzing) -> None:
    *failed, last = fuzzing(INTACT, seconds=300).splitlines()
    assert failed == []
    assert int(last) > 60
