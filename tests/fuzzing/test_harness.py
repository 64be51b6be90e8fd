from __future__ import annotations

import json

import pytest

# Commands of one line each, by number, with limits that need no patience; and what is found of each.
PLANTED = {
    "return 0": [],
    "print('attent: config.json is damaged', file=sys.stderr); return 2": [],
    "print('line 3: too long', file=sys.stderr); return 2": [],
    "raise RecursionError('planted')": ["exit code 1", "a traceback"],
    "os.abort()": ["ended by signal 6"],
    "time.sleep(60)": ["ran longer than 1.5 s"],
    "held = b'x' * (300 * 2**20); time.sleep(60)": ["took more than 50 MB"],
    "held = b'x' * (100 * 2**20); return 0": ["took more than 50 MB"],
    "print('attent: damaged', file=sys.stderr); return 2": ["no culprit in the message, expected one of config.json"],
    "print('attent: unexpected KeyError: config.json', file=sys.stderr); return 2": ["an unexpected error"],
    "print('attent: config.json', 'more', sep='\\n', file=sys.stderr); return 2": [
        "1 error lines of 2 on standard error, expected one, the last"
    ],
    "return 2": ["0 error lines of 0 on standard error, expected one, the last"],
    "import warnings; warnings.warn('planted'); return 0": ["a warning of Python's"],
    "print('\\x1b]0;owned\\x07'); return 0": ["a terminal escape in the output"],
    "Path('link').write_text('through a link'); return 0": ["changed outside its folder: canary/notes.txt"],
    "Path('../beside').write_text('escaped'); return 0": ["changed outside its folder: beside"],
    "Path('within').write_text('its own'); return 0": [],
}
RUN_PLANTED = f"""
import json, os, sys, time
from pathlib import Path
from fuzzing.cases import Case
from fuzzing.fork import Limits
from fuzzing.harness import findings
from fuzzing.mutators import Mutation

lines = {list(PLANTED)}
names = {{"os": os, "sys": sys, "time": time, "Path": Path}}

def draw(number, folder, canary):
    (folder / "config.json").write_text("spoilt")
    (folder / "link").symlink_to(canary / "notes.txt")
    return Case((str(number),), Mutation("config.json: spoilt", ("config.json",)))

def command(arguments):
    exec("def planted(): " + lines[int(arguments[0])], names)
    return names["planted"]()

limits = Limits(seconds=1.5, megabytes=50)
found = findings(range(len(lines)), draw, command, Path("work").absolute(), 2, limits)
print(json.dumps({{lines[finding.number]: finding.faults for finding in found}}))
"""
# Every command as the cases have it, with nothing spoilt.
INTACT = """
from itertools import count
from pathlib import Path
from attent.cli.app import run
from fuzzing import cases, fixtures, harness
from fuzzing.fork import Limits

harness.preload()
material = Path("material").absolute()
material.mkdir()
fixtures.write(material)

def draw(number, folder, canary):
    folder.mkdir(exist_ok=True)
    return cases.intact(number, material, folder)

last = next(number for number in count() if draw(number, Path(f"draw{number}"), None) is None)
for finding in harness.findings(range(last), draw, run, material, 2, Limits()):
    if finding.faults:
        print(finding.case, finding.faults, finding.outcome.err[-500:])
print(last)
"""


@pytest.mark.slow
def test_faults_of_a_command_are_found(fuzzing) -> None:
    assert json.loads(fuzzing(RUN_PLANTED)) == PLANTED


@pytest.mark.slow
def test_commands_with_intact_input_have_no_faults(fuzzing) -> None:
    *failed, last = fuzzing(INTACT).splitlines()
    assert failed == []
    assert int(last) > 60
