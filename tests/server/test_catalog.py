"""Runs that change on disk while they are served."""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import subprocess
import sys
import time
import urllib.request
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from attent.errors import RunError
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.ops import native
from attent.runs.config import RunConfig, read_config, write_config
from attent.runs.folder import MODEL, RunWriter, read, without_digest
from attent.runs.packed import write_packed
from attent.server import catalog as catalogs
from attent.server.catalog import RunCatalog
from attent.tasks.translation.translator import Translator, load, load_ensemble
from attent.text.tokenizer import CharTokenizer

SETTINGS = TransformerSettings(
    encoder_layers=1, decoder_layers=1, width=64, feed_forward=64, heads=2, share_embeddings="none"
)
LETTERS = "abcdefghijklmnopqrstuvwxyz .!?"
TEXTS = ["the dog", "a cat sat.", "who?", "no!", "it rains today", "yes", "two men walk", "q"]
# Seconds within which a whole run is served: wider than promised, for a busy machine.
LIMIT = 20.0


def write_run(
    path: Path,
    seed: int,
    dtype: str = "float32",
    target: str = "de",
    source: str = "en",
    letters_seed: int | None = None,
) -> Path:
    """Write an untrained run, whose vocabularies have the size of any other's.

    Only digests tell that files are of two runs.
    """
    torch.manual_seed(seed)
    letters = random.Random(letters_seed or seed).sample(LETTERS, len(LETTERS))
    tokenizers = CharTokenizer("".join(letters)), CharTokenizer("".join(reversed(letters)))
    config = RunConfig(model=SETTINGS, origin={"source_language": source, "target_language": target})
    with RunWriter(path) as run:
        model = Transformer(SETTINGS, *(tokenizer.size for tokenizer in tokenizers)).eval()
        run.finish(config, model, *tokenizers)
    if dtype != "float32":
        write_packed(path, read(path), dtype)
    return path


def without_digests(run: Path) -> Path:
    """Make of a run what earlier versions wrote: nothing tells which tokenizers its weights are for."""
    from safetensors.torch import load_file, save_file

    save_file({name: tensor.clone() for name, tensor in load_file(run / MODEL).items()}, run / MODEL)
    write_config(without_digest(read_config(run)), run)
    return run


def copy_in_place(source: Path, file: Path, pause: Callable[[], object] = lambda: None) -> None:
    """Write a file as cp does: it is shortened, and has the same inode."""
    content = source.read_bytes()
    with file.open("wb", buffering=0) as stream:
        for begin in range(0, len(content), 30_000):
            stream.write(content[begin : begin + 30_000])
            pause()


def reload_until(catalog: RunCatalog, is_done: Callable[[], bool], lines: list[str]) -> None:
    deadline = time.monotonic() + 60
    while not is_done():
        assert time.monotonic() < deadline
        catalog.reload()
        time.sleep(0.02)


def change(path: Path) -> None:
    """Replace a run's config by one of another inode."""
    (path / "new.json").write_text("{}")
    (path / "new.json").replace(path / "config.json")


def test_a_run_that_cannot_be_loaded_is_tried_once_for_each_change(
    tmp_path: Path, translators: dict[str, Translator]
) -> None:
    (tmp_path / "config.json").write_text("{}")
    errors, tries, lines = list[Exception](), list[Path](), list[str]()

    def load(copies: Sequence[Path]) -> Translator:
        tries.extend(copies)
        if errors:
            raise errors[0]
        return translators["en:de"]

    catalog = RunCatalog([tmp_path], [("en", "de")], load, say=lines.append)
    served = catalog.runs[0]
    errors.append(RuntimeError("no memory\nat all"))
    change(tmp_path)
    for _ in range(3):
        catalog.reload()
    assert catalog.runs == [served] and len(tries) == 2
    problem = "cannot be loaded: unexpected RuntimeError: no memory at all; the run loaded before stays in use"
    assert lines == [f"{tmp_path} has changed, and {problem}"]
    (tmp_path / "config.json").unlink()
    for _ in range(3):
        catalog.reload()
    assert len(lines) == 2
    errors.clear()
    change(tmp_path)
    catalog.reload()
    assert catalog.runs != [served] and lines[2:] == [f"{tmp_path} has changed, and was loaded again"]


def test_a_run_that_is_written_in_any_order_is_loaded_once_all_of_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogs, "FIRST_DELAY", 0.01)
    first, second, run = write_run(tmp_path / "first", 1), write_run(tmp_path / "second", 2), tmp_path / "run"
    names = ["config.json", "model.safetensors", "source.tokenizer.json", "target.tokenizer.json"]
    expected = [load(path).translate(TEXTS) for path in (first, second)]
    assert expected[0] != expected[1]
    for order in (names, names[::-1]):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(first, run)
        lines = list[str]()
        catalog = RunCatalog([run], [None], say=lines.append)
        for name in order:
            assert catalog.runs[0].translator.translate(TEXTS) == expected[0]
            copy_in_place(second / name, run / name)
            catalog.reload()
            catalog.reload()
        reload_until(catalog, lambda: any("loaded again" in line for line in lines), lines)  # noqa: B023 - called at once
        assert catalog.runs[0].translator.translate(TEXTS) == expected[1]
        assert len(lines) == len(set(lines)) <= 4
        count = len(lines)
        catalog.reload()
        assert len(lines) == count


def test_a_run_that_changes_while_it_is_loaded_is_loaded_again(tmp_path: Path) -> None:
    run, loads = write_run(tmp_path / "run", 1), list[Path]()

    def load_and_change(copies: Sequence[Path]) -> Translator:
        loads.extend(copies)
        translator = load(*copies)
        if len(loads) < 3:
            os.utime(run / "target.tokenizer.json")
        return translator

    lines = list[str]()

    catalog = RunCatalog([run], [None], load_and_change, say=lines.append)
    for _ in range(4):
        catalog.reload()
    assert len(loads) == 3 and lines == [f"{run} has changed, and was loaded again"] * 2


def test_a_failure_is_tried_again_ever_more_rarely_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, tries, now = write_run(tmp_path / "run", 1), list[float](), [0.0]
    lines = list[str]()
    catalog = RunCatalog([run], [None], lambda copies: tries.append(now[0]) or load(*copies), say=lines.append)
    monkeypatch.setattr(catalogs.time, "monotonic", lambda: now[0])
    content = (run / MODEL).read_bytes()
    (run / MODEL).write_bytes(content[:-1])
    tries.clear()
    for second in range(100):
        now[0] = float(second)
        catalog.reload()
    assert tries == [0, 1, 3, 7, 15, 31, 61, 91] and len(lines) == 1
    # the same problem of other files
    (run / MODEL).write_bytes(content[:-2])
    catalog.reload()
    assert len(tries) == 9
    now[0] += 1
    (run / MODEL).write_bytes(content)
    catalog.reload()
    assert lines[-1] == f"{run} has changed, and was loaded again"


def test_a_run_without_digests_is_loaded_once_it_has_not_changed_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(catalogs.time, "monotonic", lambda: now[0])
    first, second = (without_digests(write_run(tmp_path / str(seed), seed)) for seed in (1, 2))
    run, lines = Path(shutil.copytree(first, tmp_path / "run")), list[str]()
    catalog = RunCatalog([run], [None], say=lines.append)
    expected = [load(path).translate(TEXTS) for path in (first, second)]
    for file in second.iterdir():
        copy_in_place(file, run / file.name)
        catalog.reload()
        assert catalog.runs[0].translator.translate(TEXTS) == expected[0] and not lines
        now[0] += catalogs.QUIET - 0.1
    now[0] += catalogs.QUIET
    catalog.reload()
    assert catalog.runs[0].translator.translate(TEXTS) == expected[1]
    assert lines == [f"{run} has changed, and was loaded again"]


def test_a_run_of_other_languages_does_not_answer_for_those_of_before(tmp_path: Path) -> None:
    run, lines = write_run(tmp_path / "run", 1), list[str]()
    served = [RunCatalog([run], [pair], say=lines.append) for pair in (None, ("en", "de"))]
    shutil.rmtree(run)
    write_run(run, 2, target="fr")
    expected, before = load(run).translate(TEXTS), served[0].runs[0]
    for catalog in served:
        catalog.reload()
    assert served[0].runs == [before]
    problem = f"cannot be loaded: {run} now translates en to fr, not en to de; the run loaded before stays in use"
    assert lines[0] == f"{run} has changed, and {problem}"
    # the languages of the command hold whatever the config says
    assert served[1].runs[0].translator.translate(TEXTS) == expected
    with pytest.raises(RunError, match="there is no such folder"):
        RunCatalog([tmp_path / "missing"], [None])


def test_runs_of_the_same_languages_are_an_ensemble(tmp_path: Path) -> None:
    first, second, lines = write_run(tmp_path / "first", 1), tmp_path / "second", list[str]()
    write_run(second, 2, letters_seed=1)
    catalog = RunCatalog([first, second], [None, None], say=lines.append)
    expected = load_ensemble([first, second]).translate(TEXTS)
    assert catalog.runs[0].translator.translate(TEXTS) == expected not in [load(first).translate(TEXTS)]
    assert [run.name for run in catalog.runs] == [f"{first}, {second}"]
    shutil.rmtree(second)
    write_run(second, 3, letters_seed=1)
    catalog.reload()
    assert catalog.runs[0].translator.translate(TEXTS) == load_ensemble([first, second]).translate(TEXTS)
    assert lines == [f"{first}, {second} has changed, and was loaded again"]
    shutil.rmtree(second)
    write_run(second, 3, target="fr", letters_seed=1)
    catalog.reload()
    assert f"{second} now translates en to fr, not en to de" in lines[1]


def test_the_memory_of_a_run_that_was_replaced_is_given_back(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 1)
    lines = list[str]()
    catalog = RunCatalog([run], [None], say=lines.append)
    catalog.runs[0].translator.translate(TEXTS)
    # as the server does
    gc.freeze()
    try:
        model = weakref.ref(catalog.runs[0].translator.model)
        os.utime(run / "config.json")
        catalog.reload()
        assert len(lines) == 1 and model() is None
    finally:
        gc.unfreeze()


@contextmanager
def served(run: Path, log: Path, *options: str) -> Iterator[str]:
    """Serve a run in a process, which must end well and without a traceback; yield its address."""
    command = [sys.executable, "-m", "attent", "serve", str(run)]
    words = [*command, *["--port", "0", "--threads", "1", "--queue-limit", "64"], *options]
    with log.open("w") as errors, subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        try:
            yield process.stdout.readline().strip()
            assert process.poll() is None, f"the server ended with {process.returncode}"
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert "Traceback" not in log.read_text()


def ask(address: str, text: str) -> str:
    body = json.dumps({"q": text, "source": "en", "target": "de"}).encode()
    request = urllib.request.Request(f"{address}/translate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["translatedText"]


def seconds_until(answers: list[str], address: str) -> float:
    """Return how long it takes until a server gives these answers."""
    begin = time.monotonic()
    while [ask(address, text) for text in TEXTS] != answers:
        assert time.monotonic() - begin < LIMIT
        time.sleep(0.05)
    return time.monotonic() - begin


def runs_of(folder: Path, dtype: str) -> tuple[list[Path], list[list[str]]]:
    """Write two runs, and return them with their translations, which differ for every text."""
    if dtype != "float32" and native.library() is None:
        pytest.skip("int8 takes the compiled library")
    runs = [write_run(folder / str(seed), seed, dtype) for seed in (1, 2)]
    answers = [load(run).translate(TEXTS) for run in runs]
    assert all(first != second for first, second in zip(*answers, strict=True))
    return runs, answers


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_weights_that_are_cut_short_in_place_stop_no_server(tmp_path: Path, dtype: str) -> None:
    (first, second), answers = runs_of(tmp_path, dtype)
    run = Path(shutil.copytree(first, tmp_path / "run"))
    with served(run, tmp_path / "log") as address:
        seconds_until(answers[0], address)
        weights = [file.name for file in run.glob("*.safetensors")]
        assert len(weights) == (1 if dtype == "float32" else 2)
        for name in weights:
            os.truncate(run / name, 100)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            assert [ask(address, text) for text in TEXTS] == answers[0]
        for name in [*weights, *(file.name for file in second.glob("*.json"))]:
            copy_in_place(second / name, run / name)
        seconds_until(answers[1], address)
