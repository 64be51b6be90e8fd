"""What the frozen numbers are compared with, the command, and, only here, private names of the package."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
# When set, what is computed is written in the place of what is compared with.
WRITING = "ATTENT_FREEZE"


class Internals:
    """What no public name reaches; a module that moves is mended here alone."""

    @staticmethod
    def command(arguments: list[str]) -> int:
        from attent.cli.app import run

        return run(arguments)

    @staticmethod
    def click_command() -> Any:
        from typer.main import get_command

        from attent.cli.app import app

        return get_command(app)

    @staticmethod
    def model(run: Path) -> Any:
        import attent

        return attent.load(run).model

    @staticmethod
    def settings(text: str) -> Any:
        from attent.tasks.settings import parse

        return parse(text, "frozen.toml")

    @staticmethod
    def dates(**settings: Any) -> Any:
        """The corpus of dates: train, validation, held_out by name; pairs with source, target, links."""
        from attent.tasks.dates import DatesSettings, dates

        return dates(DatesSettings(**settings))

    @staticmethod
    def orders(pairs: list[tuple[str, str]], seed: int, epochs: int, size: Mapping[str, int]) -> list[list[list[int]]]:
        """The rows of each batch of the first epochs, in order."""
        from attent.text.batches import BatchSize, Bitext
        from attent.text.text import Pair
        from attent.text.tokenizers import learn

        built = [Pair(*pair) for pair in pairs]
        source, target = learn("char", [pair.source for pair in built]), learn("char", [pair.target for pair in built])
        examples = Bitext(built, source, target)
        return [
            [[int(row) for row in rows] for rows in examples.epoch_plan(BatchSize(**size), seed, epoch)]
            for epoch in range(epochs)
        ]

    @staticmethod
    def text_corpus(settings: str) -> dict[str, list[str]]:
        """The lines, or the pairs with a tab between, of each part of the corpus that settings in TOML name."""
        from attent.text.corpus import line_corpus, pair_corpus

        read = Internals.settings(settings)
        corpus = line_corpus(read.lines) if read.text is None else pair_corpus(read.text)
        parts = {"train": corpus.train, "validation": corpus.validation}
        return {
            name: [row if isinstance(row, str) else f"{row.source}\t{row.target}" for row in part]
            for name, part in parts.items()
        }

    @staticmethod
    def labelled_corpus(settings: str) -> dict[str, list[tuple[str, Any]]]:
        """Label and example, a text or an array, of each part of the corpus that settings in TOML name."""
        from attent.tasks.classification.corpus import image_corpus, labelled_text_corpus

        read = Internals.settings(settings)
        corpus = labelled_text_corpus(read.labelled) if read.images is None else image_corpus(read.images)
        data = (
            corpus.data
            if isinstance(corpus.data, tuple)
            else getattr(corpus.data, "pixels", getattr(corpus.data, "vectors", None))
        )
        parts = {"train": corpus.train, "validation": corpus.validation, "test": corpus.test}
        return {
            name: [(corpus.inputs.labels[corpus.classes[row]], data[row]) for row in rows]
            for name, rows in parts.items()
        }

    @staticmethod
    def batches(settings: str, rows: int, seed: int, epochs: int) -> list[list[Any]]:
        """The fields of the first rows as one batch, as validation reads it and then as each epoch of training does."""
        import numpy as np

        from attent.tasks.task import task_of

        read = Internals.settings(settings)
        task = task_of(read.task)
        corpus = task.corpus(read)
        examples = task.encode(corpus, task.learn_vocabularies(corpus))
        first = np.arange(min(rows, len(examples)))
        batches = examples.batch(first), *(examples.augmented(first, seed, epoch) for epoch in range(epochs))
        return [[*vars(batch).values()] for batch in batches]

    @staticmethod
    @contextmanager
    def server(runs: list[Path], languages: list[tuple[str, str]], **settings: Any) -> Iterator[Any]:
        """A client of `attent serve` without a network."""
        from starlette.testclient import TestClient

        from attent.server.catalog import RunCatalog
        from attent.server.server import TranslationServer
        from attent.server.settings import ServerSettings

        server = TranslationServer(
            RunCatalog(runs, languages), ServerSettings(window=0.0, **settings), lambda line: None
        )
        try:
            yield TestClient(server.app, raise_server_exceptions=False)
        finally:
            server.close()

    @staticmethod
    def without_extension(patch: pytest.MonkeyPatch) -> None:
        """Compute with plain PyTorch alone."""
        from attent.ops import native

        patch.setattr(native, "library", lambda: None)

    @staticmethod
    def has_extension() -> bool:
        """Whether the extension was compiled."""
        from attent.ops import native

        return native.library() is not None


class Done(NamedTuple):
    """How a command ended, and the lines that it wrote."""

    code: int
    out: list[str]
    err: list[str]


class Golden:
    """Values by name in golden/NAME.json.

    Args:
        name: of the file.
        indented: whether each value stands in lines of its own, for files that people compare.
    """

    def __init__(self, name: str, *, indented: bool = False) -> None:
        self.path, self.indented = GOLDEN / f"{name}.json", indented
        self.writing = bool(os.environ.get(WRITING))
        self.values: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else {}

    def check(self, name: str, value: Any, *, relative: float = 1e-4, absolute: float = 2e-5) -> None:
        """Compare plain values: numbers with a fraction within a tolerance, everything else exactly."""
        value = plain(value)
        if self.writing:
            self.values[name] = value
            return
        assert name in self.values, f"nothing is frozen of {name!r} in {self.path.name}"
        wrong = [*differences(value, self.values[name], name, relative, absolute)]
        assert not wrong, "\n" + "\n".join(wrong[:20])

    def save(self) -> None:
        if self.writing:
            GOLDEN.mkdir(exist_ok=True)
            if self.indented:
                self.path.write_text(json.dumps(self.values, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
                return
            values = sorted(self.values.items())
            lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in values]
            self.path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def differences(actual: Any, frozen: Any, name: str, relative: float, absolute: float) -> Iterator[str]:
    if isinstance(actual, dict) and isinstance(frozen, dict):
        if list(actual) != list(frozen):
            yield f"{name}: keys {[*actual]}, frozen {[*frozen]}"
        for key in actual.keys() & frozen.keys():
            # Their gradients are zero but for rounding, which Adam makes as large as any other's: the order of a sum
            # decides over them.
            if key.endswith("key_projection.bias"):
                continue
            yield from differences(actual[key], frozen[key], f"{name}.{key}", relative, absolute)
    elif isinstance(actual, list) and isinstance(frozen, list) and len(actual) == len(frozen):
        for index, (first, second) in enumerate(zip(actual, frozen, strict=True)):
            yield from differences(first, second, f"{name}[{index}]", relative, absolute)
    elif isinstance(actual, float) and isinstance(frozen, float | int):
        if not math.isclose(actual, frozen, rel_tol=relative, abs_tol=absolute) and not (
            math.isnan(actual) and math.isnan(frozen)
        ):
            yield f"{name}: {actual}, frozen {frozen}"
    elif actual != frozen:
        yield f"{name}: {actual!r}, frozen {frozen!r}"


@pytest.fixture(scope="module")
def golden(request: pytest.FixtureRequest) -> Iterator[Golden]:
    golden_file = Golden(Path(str(request.path)).stem.removeprefix("test_"))
    yield golden_file
    golden_file.save()


@pytest.fixture
def own_golden(request: pytest.FixtureRequest) -> Iterator[Golden]:
    """The frozen values of a single test, in a file that people can compare, line by line."""
    golden_file = Golden(request.node.name.removeprefix("test_"), indented=True)
    if golden_file.writing:
        golden_file.values.clear()
    yield golden_file
    golden_file.save()


@pytest.fixture
def cldr(golden: Golden) -> str:
    """The version of Unicode CLDR, which dates are made of; what is frozen of them is named by it."""
    core = pytest.importorskip("babel.core")
    version = f"CLDR {core.get_cldr_version()}"
    if not golden.writing and not any(name.startswith(version) for name in golden.values):
        pytest.skip(f"nothing is frozen of {version}, whose dates may be others")
    return version


@pytest.fixture
def internals() -> type[Internals]:
    return Internals


@pytest.fixture
def frozen_folder(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the corpora, in which the test then works, as the runs name them by relative paths."""
    monkeypatch.chdir(HERE)
    return HERE


@pytest.fixture
def copied(frozen_folder: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Copies a run folder, for what changes it."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(frozen_folder / "runs" / name, tmp_path / name))

    return copy


@pytest.fixture
def attent(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Runs the command, which must end with one of the codes, 0 unless given."""

    def command(*arguments: object, codes: tuple[int, ...] = (0,)) -> Done:
        capsys.readouterr()
        code = Internals.command([str(argument) for argument in arguments])
        written = capsys.readouterr()
        assert code in codes, written.err
        return Done(code, written.out.splitlines(), written.err.splitlines())

    return command
