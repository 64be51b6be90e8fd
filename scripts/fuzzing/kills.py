"""Check that a repeatedly killed training ends with the same bits as another and leaves no temporary files."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attent.cli.app import run
from fuzzing import fixtures
from fuzzing.fork import Child, Limits, Outcome

# Enough updates that the training between two kills is short compared to the whole.
TRAINING = (
    'updates = {updates}\nbatch_pairs = 8\nprecision = "float32"\nthreads = 1\nvalidate_every = 50\nsave_every = 5\n'
    "warmup = 1\n"
)
UPDATES_PER_KILL = 20
LIMITS = Limits(seconds=600, megabytes=4096)
# Keys that depend on the clock: times, speeds, and in a checkpoint the size of the log, which contains such numbers.
CLOCKED = ("seconds", "tokens_per_second", "log")


def differences(kills: int, seed: int, folder: Path, say: Callable[[str], None]) -> list[str]:
    """Train twice, once undisturbed and once with kills, and return a line for each difference.

    Args:
        kills: how many times the second training is killed with SIGKILL, at random times; it is then resumed, or
            restarted if there was no run folder yet.
        seed: the seed of these times.
        folder: the folder for the recipe, runs and output.
        say: prints a line for each kill.
    """
    dice = random.Random(f"kills {seed}")
    fixtures.write_texts(folder)
    recipe = fixtures.RECIPES["transformer"] + "[training]\n" + TRAINING.format(updates=UPDATES_PER_KILL * (kills + 1))
    (folder / "recipe.toml").write_text(recipe)
    whole, begins = _whole(folder)
    if whole.code != 0:
        return [f"the training that is not killed fails: {whole.err}"]
    for kill in range(1, kills + 1):
        # half of the kills happen while files are read and tokenizers are learned; some training remains after the last
        # one
        is_early = kill <= kills // 4 or dice.random() < 0.3
        delay = dice.random() * begins if is_early else begins + 1.2 * dice.random() * whole.seconds / kills
        outcome = _killed(folder, delay)
        if outcome.code != -signal.SIGKILL:
            return [
                f"a training that goes on ends with {outcome.code} before it is killed {kills} times: {outcome.err}"
            ]
        say(f"kill {kill} after {outcome.seconds:.2f} s; {_newest(folder / 'killed')}")
    for draft in (*folder.glob(".*.part/log.jsonl"), *folder.glob(".*.part")):
        # old enough that no process can be about to lock it
        os.utime(draft, (0, 0))
    last = _train(folder, "killed").wait()
    if last.code != 0:
        return [f"the last resume fails: {last.err}"]
    texts = [
        Child(lambda name=name: run(["translate", name, "sources.txt"]), folder, LIMITS).wait().out
        for name in ("whole", "killed")
    ]
    wrong = [] if texts[0] == texts[1] != "" else ["differs: what it translates"]
    return (
        wrong
        + compared(folder / "whole", folder / "killed")
        + [f"left behind: {path.name}" for path in folder.rglob(".*.part")]
    )


def _whole(folder: Path) -> tuple[Outcome, float]:
    """Train without a kill; return the outcome, and the seconds until the run folder existed."""
    child, began, begins = _train(folder, "whole"), time.monotonic(), 0.0
    while (outcome := child.poll()) is None:
        if not (folder / "whole").exists():
            begins = time.monotonic() - began
        time.sleep(0.001)
    return outcome, begins


def _killed(folder: Path, delay: float) -> Outcome:
    """Start or resume the training, and kill it after `delay` seconds; return the outcome."""
    child, end = _train(folder, "killed"), time.monotonic() + delay
    while (outcome := child.poll()) is None and time.monotonic() < end:
        time.sleep(0.001)
    if outcome is None:
        os.kill(child.pid, signal.SIGKILL)
    return outcome or child.wait()


def _train(folder: Path, name: str) -> Child:
    """Start a training, or resume it if its folder exists."""
    options = ["--resume", name] if (folder / name).exists() else ["--config", "recipe.toml", "--out", name]
    arguments = ["train", *options, "--device", "cpu"]

    def action() -> int:
        from attent.training import progress

        # a record of every update
        progress.RECORD_INTERVAL = 0.0
        return run(arguments)

    return Child(action, folder, LIMITS)


def _newest(run_folder: Path) -> str:
    if not run_folder.exists():
        return "there is no run folder"
    names = [path.name for path in run_folder.glob("checkpoints/*") if path.name.isascii() and path.name.isdecimal()]
    return f"the last checkpoint is {max(names)}" if names else "there is no checkpoint"


def compared(whole: Path, killed: Path) -> list[str]:
    """Return a line for each file of two runs that differs in more than times."""
    names = sorted(
        {path.relative_to(folder) for folder in (whole, killed) for path in folder.rglob("*") if not path.is_dir()}
    )
    return [f"differs: {name}" for name in names if _content(whole / name) != _content(killed / name)]


def _content(file: Path) -> Any:
    if not file.exists():
        return None
    if not file.name.endswith((".json", ".jsonl")):
        return file.read_bytes()
    lines = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    return [_without_clock(json.loads(line)) for line in lines]


def _without_clock(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_clock(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_clock(item) for key, item in value.items() if key not in CLOCKED}
    return value
