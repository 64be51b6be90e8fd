"""attent train: from settings to a run folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from attent.cli.inputs import check_utf8
from attent.cli.options import AUTO, DEVICES, SourceLanguage, TargetLanguage, TrustCode, device_of
from attent.cli.output import say, write
from attent.cli.settings import ALIASES, corpus_settings, override, resolve_corpus, select_table
from attent.errors import ArgumentError, check_known

if TYPE_CHECKING:
    from attent.tasks.task import Results

CORPORA = ("dates",)
RUNS = Path("runs")
LoggerName = StrEnum("LoggerName", ("tensorboard", "wandb", "mlflow"))
# The options that name the data of each task.
DATA_OPTIONS = {
    "translate": ("--train FILE", "--corpus dates"),
    "fill-mask": ("--text FILE",),
    "text-generation": ("--text FILE",),
    "classify": ("--images SOURCE", "--labelled FILE"),
}
# The options of a corpus' files, by table and key, unless they are called by the key.
FILE_OPTIONS = {
    "lines": {"train": "--text", "valid": "--valid-text"},
    "images": {"source": "--images"},
    "labelled": {"train": "--labelled", "valid": "--valid-labelled"},
}


class Command(TyperCommand):
    """The command, with an optional value of --resume: without it, --out names the run folder."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = [
            "--resume=" if word == "--resume" and next_word.startswith("-") else word
            for word, next_word in pairwise([*args, "-"])
        ]
        return super().parse_args(ctx, words)


def train(
    config: Annotated[Path | None, typer.Option(help="The settings, a TOML file.")] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="What to learn: translate, fill-mask, text-generation or classify; by the files unless given."
        ),
    ] = None,
    corpus: Annotated[str | None, typer.Option(help="dates, with the settings of the demo.")] = None,
    train: Annotated[
        str | None, typer.Option(help="Pairs of your own: a .tsv or .jsonl, also .gz, or - for standard input.")
    ] = None,
    train_source: Annotated[str | None, typer.Option(help="Instead of --train: sources, one a line.")] = None,
    train_target: Annotated[str | None, typer.Option(help="Their targets, line for line.")] = None,
    valid: Annotated[str | None, typer.Option(help="Pairs to validate on; split off unless given.")] = None,
    valid_source: Annotated[str | None, typer.Option(help="Instead of --valid: sources, one a line.")] = None,
    valid_target: Annotated[str | None, typer.Option(help="Their targets, line for line.")] = None,
    replay: Annotated[
        str | None,
        typer.Option(help="Pairs like those that --init-from's run learnt, mixed in half and half against forgetting."),
    ] = None,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    text: Annotated[
        str | None, typer.Option(help="Plain text, for fill-mask unless --task says text-generation; also .gz, or -.")
    ] = None,
    valid_text: Annotated[str | None, typer.Option(help="Text to validate on; split off unless given.")] = None,
    source_vectors: Annotated[
        str | None, typer.Option(help="Word vectors that the source's embedding starts from.")
    ] = None,
    target_vectors: Annotated[str | None, typer.Option(help="The same for the target's.")] = None,
    text_vectors: Annotated[str | None, typer.Option(help="The same for that of plain text.")] = None,
    freeze_vectors: Annotated[
        bool, typer.Option("--freeze-vectors", help="Keep these embeddings as they start.")
    ] = False,
    images: Annotated[
        str | None,
        typer.Option(
            metavar="digits|FOLDER|FILE.npz",
            help="Pictures to classify, a folder for each class; or vectors, in an .npz.",
        ),
    ] = None,
    size: Annotated[
        str | None, typer.Option(metavar="N|HxW", help="Pixels, height and width, that all pictures are brought to.")
    ] = None,
    labelled: Annotated[
        str | None, typer.Option(help="Texts to classify: text, tab and label in a line; also .gz, or -.")
    ] = None,
    valid_labelled: Annotated[
        str | None, typer.Option(help="Texts and labels to validate on; split off unless given.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The folder in which the files of the corpus lie.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="Of the model, with files and no --config: tiny, small or base.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to be; runs/NAME unless given.")] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Change a setting; may be repeated.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Train for so long, whatever the settings say.")] = None,
    updates: Annotated[
        int | None,
        typer.Option("--updates", "--steps", min=1, help="Train for so many updates, whatever the settings say."),
    ] = None,
    patience: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many validations that find nothing better.")
    ] = None,
    save_every: Annotated[
        int | None, typer.Option(min=1, help="Updates between checkpoints, beside those of validation.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the weights and of the order of the pairs.")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="How many of the processor's cores to use; measured unless given.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar=DEVICES, help="Where to train; auto unless the settings say otherwise.")
    ] = None,
    sharded: Annotated[
        bool | None,
        typer.Option(
            "--sharded/--whole", help="Whether the processes of torchrun divide weights and moments among them."
        ),
    ] = None,
    log: Annotated[
        LoggerName | None, typer.Option(help="Write losses, scores and speed there too; wandb is Weights & Biases.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Give up a run folder that is there already.")] = False,
    init_from: Annotated[
        Path | None, typer.Option(help="A run folder whose weights and tokenizers to start from.")
    ] = None,
    freeze: Annotated[
        str | None,
        typer.Option(
            metavar="PART,…", help="Keep the weights of embeddings, encoder, decoder or output as they start."
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="[RUN]", help="Go on with a run folder, instead of a new one; that of --out unless named."
        ),
    ] = None,
    trust_code: TrustCode = False,
) -> None:
    """Train a model, judge it on what was held out, and leave all of it in a run folder."""
    corpus_files = {
        "text": {
            "train": train,
            "train_source": train_source,
            "train_target": train_target,
            "valid": valid,
            "valid_source": valid_source,
            "valid_target": valid_target,
            "replay": replay,
        },
        "lines": {"train": text, "valid": valid_text},
        "images": {"source": images, "size": size},
        "labelled": {"train": labelled, "valid": valid_labelled},
    }
    if device is not None:
        device_of(device)
    task = ALIASES.get(task or "", task)
    table, files = select_table(corpus_files, task)
    if resume is not None and files:
        raise ArgumentError(
            f"a run that goes on keeps its corpus: --resume takes no {_option(table, next(iter(files)))}"
        )
    has_files_alone = bool(files) and config is None
    if has_files_alone and table == "lines" and "train" in files and task is None:
        say("learning to fill blanks (fill-mask); --task text-generation learns to continue a text")
    if (config is not None) + (corpus is not None) + (resume is not None) + has_files_alone != 1:
        data_options = [option for name, options in DATA_OPTIONS.items() if task in (None, name) for option in options]
        raise ArgumentError(
            f"say what to train: one of {', '.join(dict.fromkeys(data_options))}, --config FILE.toml and --resume RUN"
        )
    if preset is not None and init_from is not None:
        raise ArgumentError("--init-from takes the sizes of its run, so --preset has no say")
    if preset is not None and not has_files_alone:
        raise ArgumentError("--preset goes with --train or other files and no --config; else --set model.preset=NAME")
    check_known("corpus", corpus, CORPORA)
    overrides: dict[str, Any] = {
        "minutes": minutes,
        "updates": updates,
        "patience": patience,
        "threads": threads,
        "save_every": save_every,
        "device": device,
        "sharded": sharded,
        "log": None if log is None else log.value,
    }
    languages = {"source": source_language, "target": target_language}
    vectors = {"source": source_vectors, "target": target_vectors, "text": text_vectors}
    if resume is not None:
        fixed = {
            "--data": data,
            "--set": changes,
            "--seed": seed,
            "--replace": replace or None,
            "--init-from": init_from,
            "--task": task,
        }
        fixed |= {"--freeze-vectors": freeze_vectors or None, "--freeze": freeze}
        fixed |= {f"--{side}-vectors": file for side, file in vectors.items()}
        fixed |= {f"--{side}-language": language for side, language in languages.items()}
        run = _run_to_resume(resume, out, fixed)
        if device is None:
            device_of(AUTO)
        from attent.tasks import recipe

        resumed = {name: value for name, value in overrides.items() if value is not None}
        _follow(run, f"going on with {run}", lambda: recipe.resume(run, resumed, trust_code=trust_code))
        return

    from attent.tasks import recipe, settings

    vector_settings = vectors | {"frozen": freeze_vectors or None}
    vector_changes = [
        f"vectors.{name}={json.dumps(value)}" for name, value in vector_settings.items() if value is not None
    ]
    start = settings.demo() if corpus is not None else None if config is None else settings.read(config)
    if (
        files
        and not files.keys() & {"train", "train_source", "train_target", "source"}
        and getattr(start, table, None) is None
    ):
        first, main = _option(table, next(iter(files))), _option(table, "source" if table == "images" else "train")
        raise ArgumentError(f"{first} goes with {main}, or with a --config of [{table}]")
    if files:
        start = corpus_settings(files, start, preset, data, table, task, init_from, minutes)
    assert start is not None
    if task not in (None, start.task):
        raise ArgumentError(f"--task {task} is not what the settings are for: their task is {start.task!r}")
    language_changes = [
        f"text.{side}_language={json.dumps(language)}" for side, language in languages.items() if language is not None
    ]
    if language_changes and start.text is None:
        raise ArgumentError(
            "--source-language and --target-language are for pairs: --train, or --train-source and --train-target"
        )
    freeze_changes = (
        [] if freeze is None else [f"training.freeze={json.dumps([part.strip() for part in freeze.split(',')])}"]
    )
    all_changes = [*(changes or []), *vector_changes, *language_changes, *freeze_changes]
    run_settings = override(start, all_changes, seed=seed, **overrides)
    if data is not None:
        run_settings = resolve_corpus(run_settings, data)
    if device is None:
        device_of(run_settings.training.device)
    first = next(iter(files.values()), "")
    run = out or RUNS / (corpus or (config.stem if config else Path(first).name.split(".")[0] or "text"))
    check_utf8(str(run), "the run folder's name")
    options = {"replace": replace, "init_from": init_from, "trust_code": trust_code}
    _follow(run, f"training into {run}", lambda: recipe.follow(run_settings, run, **options))


def _option(table: str, key: str) -> str:
    """Return the option that names a file of a corpus."""
    return FILE_OPTIONS.get(table, {}).get(key, f"--{key.replace('_', '-')}")


def _run_to_resume(resume: str, out: Path | None, fixed: dict[str, Any]) -> Path:
    """Return the run folder to resume; raise if an option would change settings that a run keeps."""
    if not resume and out is None:
        raise ArgumentError("--resume takes a run folder: --resume RUN, or --out RUN --resume")
    if resume and out is not None:
        fixed = {"--out": out} | fixed
    if names := [name for name, value in fixed.items() if value not in (None, [])]:
        raise ArgumentError(f"a run that goes on keeps its settings: --resume takes no {names[0]}")
    return Path(resume or out or "")


def _follow(run: Path, message: str, train: Callable[[], Results]) -> None:
    """Train, and print the results in the main process."""
    from attent.cli.evaluation import result_lines
    from attent.training.distributed import is_main_process

    if is_main_process():
        say(message)
    results = train()
    if is_main_process():
        print(f"run: {run}")
        write("\n".join(result_lines(results)))
