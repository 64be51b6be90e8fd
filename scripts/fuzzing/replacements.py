"""Replacing a served run in any order and at any moment while clients send requests.

Each answer must come from one complete run.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from attent.cli.app import run as attent
from fuzzing.fixtures import LINES, TRANSFORMER
from fuzzing.fork import Child, Limits
from fuzzing.live_server import Answer, Connection, LiveServer, json_request

# Runs with different weights and target words, so that a mixture of two answers like neither.
LANGUAGES = (
    ("uno", "dos", "tres", "cuatro", "cinco", "seis", "siete"),
    ("eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben"),
    ("ichi", "ni", "san", "shi", "go", "roku", "nana"),
)
WORDS = ("one", "two", "three", "four", "five", "six", "seven")
TRAINING = (
    'updates = 40\nbatch_pairs = 8\nprecision = "float32"\nthreads = 1\nwarmup = 4\nlearning_rate = 0.02\n'
    "validate_every = 40\n"
)
TEXTS = [" ".join(WORDS[(start + step) % 7] for step in range(4)) for start in range(7)]
# Number of clients, and seconds between the requests of each.
CLIENTS, INTERVAL = 3, 0.02
# Seconds until the last good run must be served.
PATIENCE = 5.0
# Seconds within which a run that was complete for a moment has been loaded and replaced again.
LOADING = 3.0
# Seconds between two files, or two parts of a file, of a slow copy.
PAUSES = (0.0, 0.0, 0.0, 0.01, 0.3, 1.2)


def train(folder: Path) -> list[Path]:
    """Train the runs, each in a separate process, and return their folders."""
    children = list[Child]()
    for number, words in enumerate(LANGUAGES):
        own = folder / f"training-{number}"
        own.mkdir()
        names: dict[str, str] = dict(zip(WORDS, words[number:] + words[:number], strict=True))
        pairs = [
            (line, " ".join(names[word] for word in (line.split() if number else reversed(line.split()))))
            for line in LINES
        ]
        (own / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
        recipe = (
            f'[text]\ntrain = "pairs.tsv"\ntokenizer = "word"\n[model]\n{TRANSFORMER.replace("8", "64")}[training]\n'
            f"{TRAINING}"
        )
        (own / "recipe.toml").write_text(recipe)
        arguments = ["train", "--config", "recipe.toml", "--out", "run", "--set", f"training.seed={number}"]
        children.append(Child(lambda arguments=arguments: attent(arguments), own, Limits(300, 4096)))
    for child in children:
        if (outcome := child.wait()).code != 0:
            raise RuntimeError(f"a run could not be trained: {outcome.err}")
    runs = [folder / f"training-{number}" / "run" for number in range(len(LANGUAGES))]
    for number, run in enumerate(runs):
        shutil.rmtree(run / "checkpoints", ignore_errors=True)
        for file in run.iterdir():
            # rsync considers files of the same size and second identical
            os.utime(file, (number, 1_000_000 * (number + 1)))
    return runs


class Replacing:
    """Copies runs over the served run.

    Args:
        served: the folder with which the server was started; it may become a symbolic link.
        dice: the random generator.
    """

    def __init__(self, served: Path, dice: random.Random) -> None:
        self.served, self._dice, self._count = served, dice, 0
        self.ways: dict[str, Callable[[Path], None]] = {
            "the folder renamed": self._rename,
            "a link": self._link,
            "each file renamed": self._files_renamed,
            "each file written in place": self._files_written,
            "cp": lambda run: self._call("cp", "-r", f"{run}/.", f"{served}/"),
        }
        if shutil.which("rsync"):
            for options in (
                ("-a",),
                ("-a", "--inplace"),
                ("-a", "--delay-updates"),
                ("-a", "--delete-before", "--bwlimit=200"),
                ("-rc",),
            ):
                self.ways[f"rsync {' '.join(options)}"] = lambda run, options=options: self._call(
                    "rsync", *options, f"{run}/", f"{served}/"
                )

    def spoil(self, run: Path) -> tuple[Path, str]:
        """Return a corrupt copy of a run and the kind of corruption."""
        broken, dice = self._beside(run, "broken"), self._dice
        file = broken / dice.choice(
            ("config.json", "model.safetensors", "model.safetensors", "source.tokenizer.json", "target.tokenizer.json")
        )
        data = file.read_bytes()
        # the runs share one source vocabulary: if it is missing, the file of the previous run remains and works
        is_missable = file.name != "source.tokenizer.json"
        what = dice.choice(("truncated", "flipped", "missing", "emptied", "of another run"))
        match what:
            case "truncated":
                file.write_bytes(data[: dice.randrange(len(data))])
            case "flipped":
                place = dice.randrange(len(data))
                # in weights a bit of a number, elsewhere a zero byte, which no parser accepts
                new = bytes([data[place] ^ 64]) if file.suffix == ".safetensors" else b"\x00"
                file.write_bytes(data[:place] + new + data[place + 1 :])
            case "missing" if is_missable:
                file.unlink()
            case "of another run":
                file = broken / "model.safetensors"
                other = dice.choice([path for path in run.parent.parent.glob("training-*/run") if path != run])
                shutil.copy(other / file.name, file)
            case _:
                file.write_bytes(b"")
                what = "emptied"
        return broken, f"{file.name} {what}"

    def _beside(self, run: Path, name: str) -> Path:
        self._count += 1
        folder = self.served.parent / f"{name}-{self._count}"
        shutil.copytree(run, folder)
        return folder

    def _rename(self, run: Path) -> None:
        new, old = self._beside(run, "new"), self.served.parent / f"old-{self._count}"
        self.served.rename(old)
        self._pause()
        new.rename(self.served)
        self._remove(old)

    def _link(self, run: Path) -> None:
        folder = self._beside(run, "linked")
        link = self.served.parent / f"link-{self._count}"
        link.symlink_to(folder.name)
        if not self.served.is_symlink():
            self._remove(self.served.rename(self.served.parent / f"old-{self._count}"))
        # replaces an existing link atomically
        link.replace(self.served)

    def _files(self, run: Path) -> Iterator[Path]:
        """Yield the files of a run in any order; files that it lacks are deleted at some point."""
        names = [path.name for path in run.iterdir() if path.is_file()]
        more = [path.name for path in self.served.iterdir() if path.name not in names]
        for name in self._dice.sample(names + more, len(names + more)):
            if name in names:
                yield run / name
            elif (self.served / name).is_file():
                (self.served / name).unlink()
            self._pause()

    def _files_renamed(self, run: Path) -> None:
        for file in self._files(run):
            part = self.served / f".{file.name}.new"
            shutil.copy(file, part)
            part.replace(self.served / file.name)

    def _files_written(self, run: Path) -> None:
        for file in self._files(run):
            data, size = file.read_bytes(), self._dice.choice((2**12, 2**15, 2**20))
            with (self.served / file.name).open(
                self._dice.choice(("wb", "wb", "r+b" if (self.served / file.name).exists() else "wb"))
            ) as target:
                for begin in range(0, len(data), size):
                    target.write(data[begin : begin + size])
                    target.flush()
                    time.sleep(self._dice.choice(PAUSES[:4]))
                target.truncate()

    def _call(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    def _remove(self, old: Path) -> None:
        (old.unlink if old.is_symlink() else lambda: shutil.rmtree(old))()

    def _pause(self) -> None:
        time.sleep(self._dice.choice(PAUSES))


class Asking:
    """Clients of the server, and the faults of their answers.

    Args:
        server: the server.
        answers: the answers of each run, in order, to every text.
    """

    def __init__(self, server: LiveServer, answers: list[list[str]]) -> None:
        self._server, self._answers = server, answers
        # the runs that may be served now, and the run that answered last
        self.allowed, self.last = {0}, 0
        self.count, self.faults = 0, list[str]()
        self.step, self.is_over = "at the start", False

    async def ask(self) -> None:
        """Send requests until `is_over` is set."""
        connection = Connection(self._server.host, self._server.port)
        while not self.is_over:
            # a run that is replaced during a request may still answer it
            allowed = self.allowed
            try:
                answer = await connection.ask(json_request({"q": TEXTS, "source": "en", "target": "de"}))
            except (OSError, EOFError) as error:
                self.faults.append(f"{self.step}: no answer: {error}")
                self.is_over = self.is_over or not self._server.is_running
                await asyncio.sleep(1)
                continue
            self.judge(answer, allowed)
            await asyncio.sleep(INTERVAL)
        connection.close()

    def judge(self, answer: Answer, allowed: set[int]) -> None:
        """Record the faults of an answer that was requested while these runs could be served."""
        self.count += 1
        texts = _texts(answer.body) if answer.status == 200 else []
        if texts not in self._answers:
            self.faults.append(
                f"{self.step}: an answer of no whole run: {answer.status} {answer.body[:200].decode(errors='replace')}"
            )
        elif (number := self._answers.index(texts)) not in allowed | self.allowed:
            self.faults.append(
                f"{self.step}: an answer of run {number}, but {sorted(self.allowed)} are what was served last"
            )
            self.allowed = self.allowed | {number}
        else:
            self.last = number

    async def settle(self, number: int) -> None:
        """Wait until a run is served and no run that was complete for a moment can still be loading."""
        end = time.monotonic() + PATIENCE
        while self.last != number and not self.is_over:
            if time.monotonic() > end:
                self.faults.append(f"{self.step}: run {number} was not served within {PATIENCE:g} s")
                return
            await asyncio.sleep(0.02)
        if len(self.allowed) > 1:
            await asyncio.sleep(LOADING)
            if self.last != number and not self.is_over:
                self.faults.append(f"{self.step}: run {number} was served, and then run {self.last}")
        self.allowed = {number}


def _texts(body: bytes) -> list[str]:
    return json.loads(body)["translatedText"]


async def _replaced(
    server: LiveServer, served: Path, runs: list[Path], answers: list[list[str]], seed: int, count: int
) -> Asking:
    asking, current = Asking(server, answers), 0
    clients = [asyncio.create_task(asking.ask()) for _ in range(CLIENTS)]
    replacing, partial = Replacing(served, random.Random(seed)), set[int]()
    for number in range(count):
        dice = random.Random(f"replacement {seed}/{number}")
        replacing = Replacing(served, dice)
        replacing._count = 10 * number
        way = dice.choice(sorted(replacing.ways))
        chosen, what = dice.randrange(len(runs)), ""
        source = runs[chosen]
        if dice.random() < 0.3:
            source, what = replacing.spoil(source)
        else:
            current = chosen
            asking.allowed = asking.allowed | {chosen}
        # a corrupt copy and the first files of the next can form a complete run: all share one source vocabulary
        asking.allowed = asking.allowed | partial
        partial = partial | {chosen} if what else set()
        asking.step = f"replacement {number} of seed {seed}: {way}, run {chosen}{f' with {what}' if what else ''}"
        try:
            await asyncio.to_thread(replacing.ways[way], source)
        except (OSError, subprocess.CalledProcessError) as error:
            asking.faults.append(f"{asking.step}: the replacement failed: {error}")
        if what:
            shutil.rmtree(source)
            await asyncio.sleep(dice.choice((0, 0.5, 1.5)))
            # a corrupt run is followed by a good one before the next check
        elif dice.random() < 0.6 or number == count - 1:
            await asking.settle(chosen)
        else:
            await asyncio.sleep(dice.choice((0, 0.2, 1.0)))
        if asking.is_over:
            break
    asking.step = "at the end"
    await asyncio.to_thread(replacing.ways["each file renamed"], runs[current])
    await asking.settle(current)
    asking.is_over = True
    await asyncio.gather(*clients)
    return asking


def replaced(folder: Path, seed: int, count: int) -> tuple[list[str], str]:
    """Replace a served run, and return the faults and a summary."""
    runs, begin = train(folder), time.monotonic()
    served = folder / "service" / "run"
    served.parent.mkdir()
    shutil.copytree(runs[0], served)
    options = ("--languages", "en:de", "--threads", "1")

    async def alone(server: LiveServer) -> list[str]:
        connection = Connection(server.host, server.port)
        answer = await connection.ask(json_request({"q": TEXTS, "source": "en", "target": "de"}))
        connection.close()
        return _texts(answer.body)

    answers = list[list[str]]()
    for run in runs:
        with LiveServer(run, folder, options) as server:
            answers.append(asyncio.run(alone(server)))
    if any(len(set(texts)) < len(runs) for texts in zip(*answers, strict=True)):
        raise RuntimeError(f"the runs answer alike: {answers}")
    with LiveServer(served, folder, options) as server:
        before = server.megabytes
        asking = asyncio.run(_replaced(server, served, runs, answers, seed, count))
        memory, descriptors = server.megabytes, server.descriptors
        faults = [*asking.faults, *([f"the log: {server.last_line}"] if server.complaints else [])]
        faults += [end] if (end := server.stop()) else []
    loads = server.log.read_text().count("was loaded again")
    return faults, (
        f"{count} replacements of seed {seed}: {len(faults)} failures; {asking.count:,} answers, {loads} loads; "
        f"memory {before:.0f} MB, then {memory:.0f}, {descriptors} descriptors; {time.monotonic() - begin:.0f} s in all"
    )
