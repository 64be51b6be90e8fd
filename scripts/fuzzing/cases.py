"""Cases, each a command and a mutation of its input, determined by the seed and the case number."""

from __future__ import annotations

import random
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any, get_args

from typer.models import OptionInfo

from attent.cli.commands import expanded
from fuzzing.mutators import DEEP, SLOT, Mutation, entries, mutate_bytes, mutate_file, replace_file, toml

COMMANDS = Path(__file__).with_name("commands.txt")
LARGE = ("1" + "0" * 30, "1" + "0" * 5000)
TOML_VALUES = (
    *(
        "true",
        "0",
        "-1",
        "nan",
        "inf",
        "1e308",
        *LARGE,
        "0.5",
        '""',
        "[]",
        "{}",
        "1979-05-27",
        '"é"',
        "[1, 2]",
        "[[[]]]",
        '"a.b"',
    ),
    *('"../outside"', '"no_module:Class"', r'"\u001b]0;owned\u0007"', f'"{"x" * 100_000}"', "[" * DEEP + "]" * DEEP),
)
NUMBERS = ("xyz", "1.5", "", "-1", "0", *LARGE, "\udcff", "nan", "inf", "-inf", "1e400", "１", "0x10", "1_0")
TEXTS = (
    *("", "missing", "missing.txt", "caf\udce9", "caf\udce9.txt", "/dev/null/x", "x" * 5000, "\x1b[31m", "a\nb"),
    *("..", ".", "images", "None", "-x"),
)
# A module that must not be imported because a run names it.
TRAP = "import pathlib\npathlib.Path('../canary/imported').write_text('')\nclass Class:\n    pass\n"


@dataclass(frozen=True)
class Case:
    """One command, and the mutation of its input.

    Args:
        arguments: the command's arguments.
        mutation: the change of the input, and names of which an error must contain one.
        stdin: the file for its standard input.
    """

    arguments: tuple[str, ...]
    mutation: Mutation
    stdin: str | None = None

    @property
    def is_json(self) -> bool:
        """True if standard output must consist of lines of JSON."""
        return "jsonl" in self.arguments or "--json" in self.arguments

    def __str__(self) -> str:
        command = " ".join(shlex.quote(ascii(word)[1:-1][:60]) for word in self.arguments)
        return f"attent {command}{f' < {self.stdin}' if self.stdin else ''}  [{self.mutation.text}]"


@dataclass(frozen=True)
class Drawing:
    """Sources of a random case.

    These are random numbers, the fixtures, the case's folder, and a canary folder as a target for links.
    """

    dice: random.Random
    fixtures: Path
    folder: Path
    canary: Path

    def prepare(self, name: str) -> Path:
        """Copy the fixtures into the case's folder, with the named run as `run`."""
        for path in self.fixtures.iterdir():
            if path.is_file() and not path.name.startswith("bomb"):
                shutil.copyfile(path, self.folder / path.name)
            elif path.name == "images":
                shutil.copytree(path, self.folder / path.name)
        shutil.copytree(self.fixtures / "runs" / name / name, self.folder / "run")
        return self.folder / "run"


def draw(seed: int, number: int, fixtures: Path, folder: Path, canary: Path) -> Case:
    """Draw a case and write its input.

    Args:
        seed: the seed of all cases.
        number: the number of this case.
        fixtures: the folder that `fuzzing.fixtures.write` wrote.
        folder: the case's folder, empty.
        canary: another folder, as a target for links.
    """
    kinds: dict[Callable[[Drawing], Case], int] = {_run: 9, _input: 5, _recipe: 3, _option: 4}
    dice = random.Random(f"{seed}/{number}")
    return dice.choices(list(kinds), list(kinds.values()))[0](Drawing(dice, fixtures, folder, canary))


def intact(number: int, fixtures: Path, folder: Path) -> Case | None:
    """Return the case with this number and unchanged input; None after the last."""
    pairs = [(run, command) for run, commands in _commands(fixtures)[0].items() for command in commands]
    pairs += [("transformer", command) for commands in _commands(fixtures)[1].values() for command in commands]
    if number >= len(pairs):
        return None
    run, command = pairs[number]
    Drawing(random.Random(), fixtures, folder, folder).prepare(run)
    return Case(_parsed(command), Mutation("nothing", ()), _stdin(command))


@cache
def _commands(fixtures: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the commands by run and by file, except those that need a missing package or file."""
    by_run, by_file = dict[str, list[str]](), dict[str, list[str]]()
    for line in COMMANDS.read_text().splitlines():
        names, _, command = line.partition("  ")
        if line.startswith("#") or not command or ("ctranslate2" in command and find_spec("ctranslate2") is None):
            continue
        for name in names.split():
            if (fixtures / "runs" / name).is_dir():
                by_run.setdefault(name, []).append(command.strip())
            elif (fixtures / name).exists():
                by_file.setdefault(name, []).append(command.strip())
    return by_run, by_file


def _parsed(command: str) -> tuple[str, ...]:
    return tuple(shlex.split(command.partition("<")[0]))


def _stdin(command: str) -> str | None:
    return command.partition("<")[2].strip() or None


def _run(drawing: Drawing) -> Case:
    """Corrupt or add a file in a run folder."""
    dice = drawing.dice
    name, commands = dice.choice(sorted(_commands(drawing.fixtures)[0].items()))
    arguments = _parsed(dice.choice(commands))
    run = drawing.prepare(name)
    (drawing.folder / "evilmod.py").write_text(TRAP)
    files = sorted(path for path in run.iterdir() if path.is_file())
    checkpoints = sorted(run.glob("checkpoints/*/*"))
    if dice.random() < 0.7:
        # commands read the config more than any other file
        file = dice.choice([run / "config.json", *files] + (checkpoints if "--resume" in arguments else []))
        mutation = mutate_file(file, dice)
    else:
        planted = [run / name for name in (".config.json.part", ".model.safetensors.part", ".checkpoints.part")]
        planted += [
            run / "checkpoints" / name
            for name in ("²", "99990000", "00000001", "00000004", "00000006", ".00000006.part")
        ]
        file = dice.choice([*files, *checkpoints, run / "checkpoints", *planted])
        mutation = replace_file(file, drawing.canary, dice)
    culprits = [part.removesuffix("s") for part in file.relative_to(run).parts] + [
        file.name.removeprefix(".").removesuffix(".part")
    ]
    if file.name == "config.json" or file.name.endswith(".tokenizer.json"):
        # sizes that do not fit the weights are reported by the tensor that differs
        culprits += [" must be (", " is missing", " has no place in the model", "as its tokenizers say"]
    if "3e+38 at" in mutation.text:
        culprits.append("loss")
    return Case(arguments, mutation._replace(culprits=(*mutation.culprits, *culprits)))


def _input(drawing: Drawing) -> Case:
    """Corrupt an input file of a command."""
    dice, (by_run, by_file) = drawing.dice, _commands(drawing.fixtures)
    name = dice.choice(sorted(by_file))
    pairs = [("transformer", command) for command in by_file[name]]
    pairs += [(run, command) for run, commands in by_run.items() for command in commands if name in command]
    run, command = dice.choice(pairs)
    arguments, stdin = _parsed(command), _stdin(command)
    drawing.prepare(run)
    file, chance = drawing.folder / name, dice.random()
    if name == "images":
        file = file / "dark" / "1.png" if "images/dark/1.png" in arguments else dice.choice(sorted(file.rglob("*.png")))
    if chance < 0.15 and file.suffix in (".gz", ".npz"):
        shutil.copyfile(drawing.fixtures / f"bomb{file.suffix}", file)
        mutation = Mutation(f"{file.name} is a bomb", (file.name,))
    elif chance < 0.3 and file.name != stdin:
        # a corpus may come through a pipe
        mutation = replace_file(file, drawing.canary, dice, may_block=file.suffix == ".npz")
    else:
        # an attention map takes memory proportional to the square of the length
        giant = (
            10**7
            if arguments[0] == "train"
            else 300
            if arguments[0] in ("align", "export") or "--alignments" in arguments
            else 1000
        )
        mutation = mutate_file(file, dice, giant)
    return Case(
        arguments, mutation._replace(culprits=(*mutation.culprits, *(["standard input"] if stdin else []))), stdin
    )


def _recipe(drawing: Drawing) -> Case:
    """Corrupt a recipe."""
    dice = drawing.dice
    name = dice.choice(sorted(_commands(drawing.fixtures)[0]))
    drawing.prepare(name)
    file = drawing.folder / f"{name}.toml"
    if dice.random() < 0.3:
        spoilt, done = mutate_bytes(file.read_bytes(), dice)
        key = file.name
    else:
        tables: dict[str, Any] = tomllib.loads(file.read_text())
        holder, key, path = dice.choice(list(entries(tables)))
        value = dice.choice(TOML_VALUES)
        if dice.random() < 0.2 and isinstance(holder, dict):
            path = (*path[:-1], key := "unknown_key")
        holder[key] = SLOT
        spoilt = toml(tables).replace(f'"{SLOT}"', value).encode()
        done, key = f"{'.'.join(map(str, path))} = {value[:40]}", [part for part in path if isinstance(part, str)][-1]
    file.write_bytes(spoilt)
    arguments = ("train", "--config", file.name, "--updates", "2", "--out", "new")
    return Case(arguments, Mutation(f"{file.name}: {done}", (file.name, key, *_texts(spoilt))))


def _texts(recipe: bytes) -> list[str]:
    """Return the strings in a recipe, such as file names."""
    try:
        tables = tomllib.loads(recipe.decode())
    except (ValueError, RecursionError):
        return []
    texts = [holder[key] for holder, key, _ in entries(tables) if isinstance(holder[key], str)]
    return [text[:80] for text in texts if len(text) > 2 or not text.isascii()]


def _option(drawing: Drawing) -> Case:
    """Set an option or an argument of a command to a wrong value."""
    dice = drawing.dice
    name, commands = dice.choice(sorted(_commands(drawing.fixtures)[0].items()))
    arguments = _parsed(dice.choice(commands))
    drawing.prepare(name)
    # a wrong length limit may legitimately request endless translations
    options = [option for option in _options(arguments[0]) if option[0] not in ("--max-length", "--max-factor")]
    number = dice.randrange(-1, len(options))
    if number < 0:
        first = next((index for index, word in enumerate(arguments) if word.startswith("--")), len(arguments))
        spot, value = dice.randrange(1, max(first, 2)), dice.choice((*NUMBERS, *TEXTS))
        spoilt, culprits = (*arguments[:spot], value, *arguments[spot + 1 :]), [arguments[spot]]
        named = value[: 2 if value.startswith("-") else 80]
    else:
        option, is_number = options[number]
        value = dice.choice(NUMBERS if is_number else (*NUMBERS, *TEXTS))
        spoilt, culprits = (*arguments, option, value), [option, option[2:].replace("-", "_")]
        if option in ("--source", "--target"):
            culprits.append("pairs")
        if option in ("--text", "--images", "--labelled"):
            # the error for another task's run names that task's command
            culprits.append(": attent ")
        # many messages contain a digit
        named = "" if value == "0" else value[:80]
    # an empty path is that of the working directory
    culprits += [named] if named else ["''", "'.'", ": . ", ". is", f"'{value}'", *(["empty"] if not value else [])]
    # a vocabulary may lack a piece of it
    culprits += [f"{piece!r} is unknown" for piece in re.findall(r"\w+", value[:80])]
    # of two mutually exclusive options, either may be named
    culprits += [
        word for word in arguments if arguments[0] == "evaluate" and word in ("--source", "--text", "--labelled")
    ]
    return Case(spoilt, Mutation(f"{culprits[0]} = {value[:40]!r}", tuple(culprits)))


@cache
def _options(command: str) -> list[tuple[str, bool]]:
    """Return the options of a command that take a value, and whether the value is a number."""
    function = expanded(getattr(import_module(f"attent.cli.commands.{command}"), command))
    options = []
    for name, parameter in signature(function).parameters.items():
        hint = parameter.annotation
        kinds = {hint, *get_args(hint)} | {kind for inner in get_args(hint) for kind in get_args(inner)}
        information = next((option for option in kinds if isinstance(option, OptionInfo)), None)
        if information is not None and bool not in kinds:
            options.append(
                ((information.param_decls or (f"--{name.replace('_', '-')}",))[0], not kinds.isdisjoint((int, float)))
            )
    return options
