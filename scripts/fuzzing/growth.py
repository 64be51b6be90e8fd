"""Measuring how documents are read and rendered, each in a separate process.

There are growing kinds, random documents whose text must be preserved, and corrupt ones.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from attent.documents import read_document
from attent.documents.inline import AlignedText, Element
from attent.errors import DataError
from attent.text.units import units
from fuzzing.documents import UNITS, growing, repeated, spoilt, text_of, well_formed

# Maximum processor time and additional memory for reading and rendering a document.
SECONDS, MEGABYTES = 3.0, 300.0
# Maximum growth of the cost when the document doubles; below the floors only noise would be measured.
RATIO = 2.5
FLOORS = (0.25, 24.0)
# Limits at which a process is killed, and the maximum bytes of a document that a server accepts.
MAX_SECONDS, MAX_MEMORY, MAX_BYTES = 10, 3 * 2**30, 10 * 2**20
# The share of random documents that repeat a few characters, and the number of repetitions.
REPEATED, TIMES = 0.1, 20_000


class Cost(NamedTuple):
    """The cost of a process.

    Args:
        outcome: the returned string; "refused: …" for a DataError, "fault: …" for any other error.
        seconds: seconds of processor time.
        megabytes: peak resident memory beyond that at the start.
    """

    outcome: str
    seconds: float
    megabytes: float

    @property
    def faults(self) -> list[str]:
        """The faults of this outcome."""
        wrong = [self.outcome] if self.outcome.startswith("fault: ") else []
        wrong += [f"took {self.seconds:.1f} s, more than {SECONDS:g}"] if self.seconds > SECONDS else []
        return wrong + (
            [f"took {self.megabytes:.0f} MB, more than {MEGABYTES:g}"] if self.megabytes > MEGABYTES else []
        )


def identity(line: Element) -> AlignedText:
    """Return a line as its own translation, with links if it contains markup around words."""
    return AlignedText(line.text, [(span, span) for span in units(line.text)] if line.elements else [])


def render(content: bytes, ending: str) -> bytes:
    """Read a document, and render it with each line as its own translation."""
    document = read_document(content, ending)
    return document.render(map(identity, document.lines))


def measured(action: Callable[[], str]) -> Cost:
    """Run an action in a forked process, with limits on its time and memory."""
    # memory that is free here would be used there without being counted
    ctypes.CDLL(None).malloc_trim(0)
    reading, writing = os.pipe()
    sys.stdout.flush()
    begin = _resident()
    if (pid := os.fork()) == 0:
        _run(action, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        printed = pipe.read()
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    outcome = (
        json.loads(printed)
        if printed
        else f"fault: ended by {signal.Signals(-code).name if code < 0 else f'code {code}'}"
    )
    return Cost(outcome, usage.ru_utime + usage.ru_stime, max(usage.ru_maxrss / 1024 - begin, 0.0))


def _run(action: Callable[[], str], writing: int) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS + 1))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
        signal.alarm(60 * MAX_SECONDS)
        outcome = action()
        if "torch" in sys.modules:
            outcome = "fault: torch was imported"
    except DataError as error:
        outcome = (
            f"refused: {error}"
            if len(str(error)) < 1000 and "\n" not in str(error)
            else f"fault: a long error {str(error)[:80]!r}…"
        )
    except BaseException as error:
        outcome = f"fault: {type(error).__name__}: {str(error)[:200]}"
    finally:
        os.write(writing, json.dumps(outcome).encode())  # pyright: ignore[reportPossiblyUnboundVariable]
        os._exit(0)


def _resident() -> float:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def cost_of(content: bytes, ending: str) -> Cost:
    """Return the cost of reading and rendering a document."""
    return measured(lambda: f"{len(render(content, ending))} bytes")


def growth(half: Cost, whole: Cost, quarter: Cost | None = None) -> list[str]:
    """Return the faults in how a document's cost compares with that of one half as large.

    Args:
        half: the cost of the document half as large.
        whole: the cost of the document.
        quarter: the cost of one a quarter as large. A process first uses up the memory that was free in its parent,
            which is not counted: with this cost, what the whole takes beyond the half must also be too much beside what
            the half takes beyond the quarter.
    """
    wrong = list[str]()
    for name, floor, before, after in zip(("s", "MB"), FLOORS, half[1:], whole[1:], strict=True):
        ratio = after / max(before, floor / RATIO)
        if after <= floor or ratio <= RATIO:
            continue
        if name == "MB" and quarter is not None:
            step = max(before - quarter.megabytes, floor / RATIO)
            if (after - before) / step <= RATIO:
                continue
        wrong.append(f"grew {ratio:.1f} times: from {before:.2f} to {after:.2f} {name}")
    return wrong


def judged(
    quarter: bytes, half: bytes, whole: bytes, ending: str, before: Cost, measure: Callable[[bytes, str], Cost]
) -> tuple[Cost, list[str]]:
    """Return a document's cost and faults, compared with documents half and a quarter as large.

    Since other processes disturb measurements, growth is reported only if a second measurement confirms it, with the
    greater cost of the half and the smaller cost of the whole.

    Args:
        quarter: the document a quarter as large; empty if there is none.
        half: the document half as large.
        whole: the document.
        ending: the extension of their names.
        before: the cost of the half.
        measure: returns the cost of a document.
    """
    cost = measure(whole, ending)
    if cost.faults or not growth(before, cost):
        return cost, cost.faults
    least = measure(quarter, ending) if quarter else None
    before, after = measure(half, ending), measure(whole, ending)
    return cost, growth(
        before, Cost(after.outcome, min(cost.seconds, after.seconds), min(cost.megabytes, after.megabytes)), least
    )


def grown(kind: str, measure: Callable[[bytes, str], Cost] = cost_of) -> list[str]:
    """Double a document of a kind until it is too large, refused or faulty; return the faults of the last one."""
    ending, number, make = growing()[kind]
    quarter, half, before = b"", b"", Cost("", SECONDS, MEGABYTES)
    while len(content := make(number)) <= MAX_BYTES:
        cost, wrong = judged(quarter, half, content, ending, before, measure)
        if wrong or cost.outcome.startswith("refused"):
            return [f"{kind}, n = {number:,}, {len(content):,} bytes: {'; '.join(wrong)}"] if wrong else []
        number, quarter, half, before = 2 * number, half, content, cost
    return []


def document_faults(seed: int, number: int) -> tuple[str, bytes, list[str]]:
    """Draw a random document; return its extension, its content and the faults of the result."""
    dice = random.Random(f"document {seed}/{number}")
    kind = dice.choices(("repeated", "well-formed", "spoilt"), (REPEATED, 0.4, 0.5))[0]
    if kind == "repeated":
        ending = dice.choice(sorted(UNITS))
        before, unit = ("".join(dice.choices(UNITS[ending], k=dice.randint(*sizes))) for sizes in ((0, 2), (1, 4)))
        quarter, half, whole = (repeated(unit, times, before) for times in (TIMES // 4, TIMES // 2, TIMES))
        _, wrong = judged(quarter, half, whole, ending, cost_of(half, ending), cost_of)
        return ending, whole, [f"{before!r} and {unit!r} {TIMES:,} times: {'; '.join(wrong)}"] if wrong else []
    ending, content = well_formed(dice) if kind == "well-formed" else spoilt(dice)

    def compare() -> str:
        rendered = render(content, ending)
        if kind == "spoilt" or (before := text_of(ending, content)) == (after := text_of(ending, rendered)):
            return "rendered"
        what = "text" if "".join(before.split()) != "".join(after.split()) else "white space"
        place = next(
            (index for index, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(before)
        )
        return (
            f"fault: other {what}: {before[max(place - 20, 0) : place + 20]!r} became "
            f"{after[max(place - 20, 0) : place + 20]!r}"
        )

    cost = measured(compare)
    is_refused = kind == "well-formed" and cost.outcome.startswith("refused")
    return ending, content, [*cost.faults, *([f"a well-formed document was {cost.outcome}"] if is_refused else [])]


def checked(seed: int, numbers: Sequence[int], kinds: Sequence[str], jobs: int) -> Iterator[list[str]]:
    """Yield the faults of each growing kind and each random document, processed concurrently."""
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for wrong in pool.imap_unordered(grown, kinds):
            yield wrong
        for number, (_, _, wrong) in zip(numbers, pool.imap(partial(document_faults, seed), numbers), strict=True):
            yield [f"--documents {number + 1} --seed {seed} --case {number}: {fault}" for fault in wrong]
