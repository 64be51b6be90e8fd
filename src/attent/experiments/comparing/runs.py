"""The trainings of a comparison: each is a run folder, trained once, gone on with where it was interrupted."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from attent.data.settings import FILES
from attent.decoding.translator import Translator, load
from attent.errors import ArgumentError, RunError
from attent.runs.config import CONFIG, read_config
from attent.runs.durable import new_file
from attent.runs.folder import LOG, MODEL
from attent.runs.weights import digest
from attent.tasks.recipe import follow, resume
from attent.tasks.settings import RunSettings
from attent.training.progress import Progress

Say = Callable[[str], None]
# What says what a folder holds.
MARK = "comparison.json"


@dataclass(frozen=True)
class Planned:
    """A training to be done.

    Args:
        name: of its run folder within the comparison's, such as "dates/luong-1".
        settings: all of it.
    """

    name: str
    settings: RunSettings


class Outcome(NamedTuple):
    """What a training came to.

    Args:
        updates: how many there were.
        seconds: how long they took.
        parameters: of the model.
        tokens_per_second: target tokens of training, padding not included; the middle of all records.
        loss: of validation, in nats per token.
        precision: that the training chose.
        threads: that it chose.
    """

    updates: int
    seconds: float
    parameters: int
    tokens_per_second: float
    loss: float
    precision: str
    threads: int

    @property
    def computed(self) -> str:
        """In what precision and on how many threads."""
        return f"{self.precision}, {self.threads} thread{'s' if self.threads > 1 else ''}"


class Translated(NamedTuple):
    """What a model made of some texts, and how long that took."""

    texts: list[str]
    seconds: float


def claim(folder: Path, experiment: str) -> None:
    """Make a folder this experiment's, or go on in one that is.

    Raises:
        ArgumentError: it holds something else.
        RunError: it cannot be written.
    """
    mark = folder / MARK
    if mark.is_file():
        try:
            held = json.loads(mark.read_text(encoding="utf-8"))["comparison"]
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{mark} is damaged") from error
        if held != experiment:
            raise ArgumentError(f"{folder} holds the comparison {held!r}, not {experiment!r}: name another folder with --out")
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArgumentError(f"{folder} holds something else than a comparison: name another folder with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be written: {error.strerror}") from error
    with new_file(mark) as file:
        file.write_text(json.dumps({"comparison": experiment}) + "\n", encoding="utf-8")


def train(planned: Sequence[Planned], folder: Path, *, beside: float = 0.0, say: Say = print, progress: Progress | None = None) -> None:
    """Train what is not trained yet, one after another, and say beforehand how long all of it will take at most.

    Args:
        planned: the trainings.
        folder: the comparison's.
        beside: minutes that judging and measuring are expected to take.
        say: gets a line for each.
        progress: where a person sees each training.

    Raises:
        ArgumentError: a run folder was trained with other settings.
    """
    left = [one for one in planned if not _finished(one, folder)]
    limits = [one.settings.training.minutes for one in left]
    most = sum(limit or 0.0 for limit in limits) + beside
    bound = f"at most about {most:.0f} minutes" if None not in limits else "by updates alone, so that how long it takes is not known"
    done = len(planned) - len(left)
    say(f"{len(planned)} training{'s' * (len(planned) > 1)}, {f'{done} of them' if done else 'none'} finished already: {bound}")
    threads = torch.get_num_threads()
    for number, one in enumerate(left, start=done + 1):
        say(f"{number}/{len(planned)} {one.name}")
        path = folder / one.name
        try:
            if path.exists():
                resume(path, {"device": one.settings.training.device}, progress=progress)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                follow(one.settings, path, progress=progress)
        finally:
            # each chooses anew among all, not among those that the one before has left
            torch.set_num_threads(threads)


def outcome(one: Planned, folder: Path) -> Outcome:
    """What a finished training came to."""
    path = folder / one.name
    found = read_config(path).training["outcome"]
    records = [json.loads(line) for line in (path / LOG).read_text(encoding="utf-8").splitlines()]
    speeds = [record["tokens_per_second"] for record in records if "tokens_per_second" in record]
    parameters = sum(parameter.numel() for parameter in load(path).model.parameters())
    speed = statistics.median(speeds) if speeds else float("nan")
    pace = found["precision"], found["threads"]
    return Outcome(found["updates"], found["seconds"], parameters, speed, found["validation"].get("loss", float("nan")), *pace)


def averaged(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What the trainings of several seeds came to, for a row of a table.

    Args:
        outcomes: of each seed, one at least.

    Returns:
        parameters, which are as many for every seed; updates, minutes and tokens_per_second (target tokens), the means; computed, in what
        and on how many threads, each that there was.
    """
    return {
        "parameters": outcomes[0].parameters,
        "updates": statistics.fmean(one.updates for one in outcomes),
        "minutes": statistics.fmean(one.seconds for one in outcomes) / 60,
        "computed": "; ".join(sorted({one.computed for one in outcomes})),
        "tokens_per_second": statistics.fmean(one.tokens_per_second for one in outcomes),
    }


def translated(one: Planned, folder: Path, name: str, texts: Sequence[str], say: Say = print) -> Translated:
    """What a finished training's model makes of some texts, greedily; kept beside the run folder, so that it is done once.

    What another model made, of a training that has been done anew since, is not taken.

    Args:
        one: the training.
        folder: the comparison's.
        name: of the texts.
        texts: the same each time.
        say: gets a line where they are translated.
    """
    kept = folder / f"{one.name}.{name.replace(' ', '-')}.json"
    weights = digest(folder / one.name / MODEL)
    if kept.is_file():
        try:
            found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RunError(f"{kept} is damaged: remove it, and it is made again") from error
        if found.get("weights") == weights and found.get("sources") == list(texts):
            return Translated(found["translations"], found["seconds"])
    say(f"translating {len(texts):,} texts of {name} by {one.name}")
    translator: Translator = load(folder / one.name)
    began = time.perf_counter()
    made = translator.translate(texts)
    seconds = time.perf_counter() - began
    with new_file(kept) as file:
        values = {"weights": weights, "seconds": seconds, "sources": list(texts), "translations": made}
        file.write_text(json.dumps(values, ensure_ascii=False) + "\n", encoding="utf-8")
    return Translated(made, seconds)


def _finished(one: Planned, folder: Path) -> bool:
    """Whether it is, with these settings."""
    path = folder / one.name
    if not path.exists():
        return False
    if not (path / CONFIG).is_file():
        raise ArgumentError(f"{path} is no run folder: name another folder with --out")
    config, settings = read_config(path), one.settings
    asked = {
        "model": (config.model, settings.model),
        "training": (_without(config.training, "outcome"), settings.training.table),
        "corpus": (_corpus(config.corpus), _corpus(settings.model_dump(mode="json"))),
    }
    for what, (has, wanted) in asked.items():
        if has != wanted:
            raise ArgumentError(f"{path} was trained with another {what}: give the same options again, or another --out")
    return config.state == "finished"


def _corpus(tables: dict[str, Any]) -> dict[str, Any]:
    """The corpus' settings but where its files lie."""
    text = tables.get("text")
    return {"dates": tables.get("dates")} if text is None else {"text": _without(text, *FILES)}


def _without(table: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in keys}
