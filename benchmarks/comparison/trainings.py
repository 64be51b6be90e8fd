"""The trainings of a comparison: named models, their settings, and their run folders.

Each run is trained once, and resumed if it was interrupted.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from attent.devices import limit_threads
from attent.errors import ArgumentError, RunError, check_known, first_fault
from attent.runs.config import CONFIG, read_config
from attent.runs.durable import LOG, said_clearly, write_text
from attent.runs.weights import digest
from attent.tasks.dates import DatesSettings, dates
from attent.tasks.recipe import follow, resume
from attent.tasks.settings import RunSettings
from attent.tasks.translation.translator import Translator, load
from attent.text.settings import FILES
from attent.text.text import TranslationCorpus
from attent.training.progress import Progress

Say = Callable[[str], None]
# The file that names the comparison of a folder.
MARK = "comparison.json"

MODELS = ("none", "bahdanau", "luong", "transformer")
# The names of models in figures and tables.
TITLES = {"none": "RNN, fixed vector", "bahdanau": "RNN, Bahdanau", "luong": "RNN, Luong", "transformer": "Transformer"}

RNN = {"kind": "rnn", "embedding_width": 64, "width": 128}
TRANSFORMER = {
    "kind": "transformer",
    "encoder_layers": 2,
    "decoder_layers": 2,
    "width": 128,
    "feed_forward": 256,
    "heads": 4,
    "position": "rotary",
    "norm": "pre",
    "dropout": 0.0,
}
# For captions, which are harder and have fewer examples.
RNN_ON_CAPTIONS = {
    "kind": "rnn",
    **dict.fromkeys(("embedding_width", "width", "encoder_width"), 256),
    **dict.fromkeys(("embedding_dropout", "context_dropout", "output_dropout"), 0.2),
}
TRANSFORMER_ON_CAPTIONS = {"kind": "transformer", "preset": "tiny", "norm": "pre", "position": "rotary"}

DATES: dict[str, Any] = {"held_out_pairs": 1000}
# For joined dates: more test pairs, and a tag before each date to show where it begins.
DATES_TO_JOIN: dict[str, Any] = {"held_out_pairs": 3000, "untagged": 0.0}
BATCH_PAIRS = 48
# For captions: size of the vocabulary, tokens per batch, and maximum tokens per sentence.
PIECES, BATCH_TOKENS, MAX_LENGTH = 4000, 2048, 512


@dataclass(frozen=True)
class Options:
    """The options of a comparison.

    Args:
        out: folder of the comparison.
        data: Multi30k's folder; captions are left out unless given.
        minutes: maximum minutes per training; the experiment's default unless given.
        updates: updates per training; the experiment's default unless given.
        seeds: number of trainings per model, with the seeds 1, 2 and so on.
        models: names of models; all of the experiment's unless given.
        parts: names of scores or normalizers, or parts of the experiment; all unless given.
        text: files of your own pairs, by their key in [text]; dates unless given.
    """

    out: Path
    data: Path | None = None
    minutes: float | None = None
    updates: int | None = None
    seeds: int | None = None
    models: Sequence[str] | None = None
    parts: Sequence[str] | None = None
    text: Mapping[str, str] | None = None

    def seed_range(self, default: int) -> range:
        """Return the seeds from 1; their number is the default unless given."""
        return range(1, (self.seeds or default) + 1)


@dataclass(frozen=True)
class TrainingPlan:
    """A training to run.

    Args:
        name: name of the run folder inside the comparison's folder, such as "dates/luong-1".
        settings: settings of the run.
    """

    name: str
    settings: RunSettings


class Outcome(NamedTuple):
    """The outcome of a training.

    Args:
        updates: number of updates.
        seconds: duration of the training.
        parameters: number of parameters of the model.
        tokens_per_second: target tokens per second without padding; the median of the log's records.
        loss: validation loss in nats per token.
        precision: precision of the training.
        threads: number of threads of the training.
    """

    updates: int
    seconds: float
    parameters: int
    tokens_per_second: float
    loss: float
    precision: str
    threads: int


class Translations(NamedTuple):
    """A model's translations of some texts, and the time that they took in seconds."""

    texts: list[str]
    seconds: float


def select(kind: str, names: Sequence[str] | None, choices: Sequence[str]) -> list[str]:
    """Return the given names in the order of the choices; all choices if no names are given.

    Raises:
        UnknownNameError: a name is unknown.
    """
    for name in names or ():
        check_known(kind, name, choices)
    return [name for name in choices if not names or name in names]


def model_settings(name: str, *, captions: bool = False) -> dict[str, Any]:
    """Return the settings of the model with this name in `MODELS`."""
    rnn, transformer = (RNN_ON_CAPTIONS, TRANSFORMER_ON_CAPTIONS) if captions else (RNN, TRANSFORMER)
    return dict(transformer) if name == "transformer" else {**rnn, "attention": name}


@cache
def dates_corpus(settings: DatesSettings) -> TranslationCorpus:
    """Return the dates with these settings, which are generated only once."""
    return dates(settings)


def plan_on_dates(
    name: str,
    model: Mapping[str, Any],
    seed: int,
    options: Options,
    files: Mapping[str, str] | None = None,
    *,
    updates: int,
    minutes: float,
) -> TrainingPlan:
    """Plan a training on dates, or on files of dates, with the same batches for every model.

    The updates and minutes in `options` override the given ones.
    """
    limits = {"updates": options.updates or updates, "minutes": options.minutes or minutes}
    return TrainingPlan(name, settings_on_dates(model, files, **limits, seed=seed))


def settings_on_dates(model: Mapping[str, Any], files: Mapping[str, str] | None = None, **training: Any) -> RunSettings:
    """Return the settings of a training on dates, or on files of dates, with these updates, minutes and seed."""
    corpus = {"dates": DATES} if files is None else {"text": {**files, "tokenizer": "char"}}
    rate = 3e-3 if model["kind"] == "rnn" else 2e-3
    # the model is too small to be faster in 16 bits
    return _settings(corpus, model, batch_pairs=BATCH_PAIRS, learning_rate=rate, precision="float32", **training)


def settings_on_captions(files: Mapping[str, str], model: Mapping[str, Any], **training: Any) -> RunSettings:
    """Return the settings of a training on joined captions, with these updates, minutes and seed."""
    return settings_on_text({**files, "vocabulary": PIECES, "maximum_length": MAX_LENGTH}, model, **training)


def settings_on_text(text: Mapping[str, Any], model: Mapping[str, Any], **training: Any) -> RunSettings:
    """Return the settings of a training on pairs, with this table [text], and with updates, minutes and seed.

    Raises:
        ArgumentError: the files do not go together.
    """
    rate = 2e-3 if model["kind"] == "rnn" else 3e-3
    return _settings(
        {"text": dict(text)},
        model,
        batch_tokens=BATCH_TOKENS,
        learning_rate=rate,
        label_smoothing=0.1,
        warmup=200,
        **training,
    )


def _settings(corpus: Mapping[str, Any], model: Mapping[str, Any], **training: Any) -> RunSettings:
    usual = {"schedule": "cosine", "warmup": 100, "clip": 1.0, "label_smoothing": 0.0, "save_every": 200}
    # tables report CPU threads, and the models also translate on the CPU
    usual["device"] = "cpu"
    try:
        return RunSettings.model_validate({**corpus, "model": dict(model), "training": {**usual, **training}})
    except ValidationError as error:
        raise ArgumentError(first_fault(error)) from error


def claim(folder: Path, experiment: str, files: Mapping[str, str] | None = None) -> None:
    """Mark a folder as belonging to this experiment; accept one that already does.

    Args:
        folder: folder of the comparison.
        experiment: name of the experiment.
        files: files to train on, by their key.

    Raises:
        ArgumentError: the folder contains something else, or a comparison on other files.
        RunError: the folder cannot be written.
    """
    mark, digests = folder / MARK, {name: digest(Path(file)) for name, file in (files or {}).items()}
    if mark.is_file():
        try:
            content = json.loads(mark.read_text(encoding="utf-8"))
            owner, owner_digests = content["comparison"], content.get("files", {})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{mark} is damaged") from error
        if owner != experiment:
            raise ArgumentError(
                f"{folder} contains the comparison {owner!r}, not {experiment!r}: name another folder with --out"
            )
        if owner_digests != digests:
            raise ArgumentError(f"{folder} contains a comparison on other data: name another folder with --out")
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArgumentError(f"{folder} is not empty and contains no comparison: name another folder with --out")
    with said_clearly(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(mark, json.dumps({"comparison": experiment} | ({"files": digests} if digests else {})) + "\n")


def train(
    plans: Sequence[TrainingPlan],
    folder: Path,
    *,
    say: Say = print,
    progress: Progress | None = None,
) -> None:
    """Run the unfinished trainings one after another.

    Args:
        plans: the trainings.
        folder: folder of the comparison.
        say: called with a line for each training.
        progress: displays the progress of each training.

    Raises:
        ArgumentError: a run folder was trained with other settings.
    """
    unfinished = [plan for plan in plans if not _is_finished(plan, folder)]
    finished = len(plans) - len(unfinished)
    done = f"{finished} of them" if finished else "none"
    say(f"{len(plans)} training{'s' * (len(plans) > 1)}, {done} already finished")
    for number, plan in enumerate(unfinished, start=finished + 1):
        say(f"{number}/{len(plans)} {plan.name}")
        path = folder / plan.name
        # let the next training choose among all threads, not only those that this one chose
        with limit_threads():
            if path.exists():
                # its modules are trusted if they are those of the plan, which the user named
                resume(
                    path,
                    {"device": plan.settings.training.device},
                    trust_code=_has_model_of(plan, path),
                    progress=progress,
                )
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                follow(plan.settings, path, progress=progress)


def outcome(plan: TrainingPlan, folder: Path) -> Outcome:
    """Return the outcome of a finished training."""
    path = folder / plan.name
    result = read_config(path).training["outcome"]
    records = [json.loads(line) for line in (path / LOG).read_text(encoding="utf-8").splitlines()]
    speeds = [record["tokens_per_second"] for record in records if "tokens_per_second" in record]
    return Outcome(
        updates=result["updates"],
        seconds=result["seconds"],
        parameters=sum(parameter.numel() for parameter in _load(plan, folder).model.parameters()),
        tokens_per_second=statistics.median(speeds) if speeds else float("nan"),
        loss=result["validation"].get("loss", float("nan")),
        precision=result["precision"],
        threads=result["threads"],
    )


def translate(plan: TrainingPlan, folder: Path, name: str, texts: Sequence[str], say: Say = print) -> Translations:
    """Translate texts greedily with a finished training's model.

    Args:
        plan: the training.
        folder: folder of the comparison.
        name: name of the set of texts.
        texts: texts to translate.
        say: called with a line.
    """
    say(f"translating {len(texts):,} texts of {name} with {plan.name}")
    translator = _load(plan, folder)
    begin = time.perf_counter()
    translations = translator.translate(texts)
    return Translations(translations, time.perf_counter() - begin)


def _load(plan: TrainingPlan, folder: Path) -> Translator:
    path = folder / plan.name
    return load(path, trust_code=_has_model_of(plan, path))


def _has_model_of(plan: TrainingPlan, path: Path) -> bool:
    """Return whether a run has the plan's model, so that the modules in its config are those that the user named."""
    return read_config(path).model == plan.settings.model


def _is_finished(plan: TrainingPlan, folder: Path) -> bool:
    """Return whether a training has finished with these settings; raise if its run folder has other settings."""
    path = folder / plan.name
    if not path.exists():
        return False
    if not (path / CONFIG).is_file():
        raise ArgumentError(f"{path} is not a run folder: name another folder with --out")
    config, settings = read_config(path), plan.settings
    changes = {
        "model": config.model != settings.model,
        "training": _without(config.training, "outcome") != settings.training.table,
        "corpus": _corpus_table(config.corpus) != _corpus_table(settings.model_dump(mode="json")),
    }
    if changed := [part for part, has_changed in changes.items() if has_changed]:
        raise ArgumentError(f"{path} was trained with another {changed[0]}: use the same options, or another --out")
    return config.state == "finished"


def _corpus_table(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the corpus without the paths of its files."""
    text = tables.get("text")
    return {"dates": tables.get("dates")} if text is None else {"text": _without(text, *FILES)}


def _without(table: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in keys}
