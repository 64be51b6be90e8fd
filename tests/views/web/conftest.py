"""Small runs as pages whose models compute in the browser."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attent.formats.html import write_page
from attent.models.build import build
from attent.models.settings import RnnSettings, TransformerSettings
from attent.runs.folder import RunConfig, RunWriter
from attent.tasks.recipe import follow
from attent.tasks.settings import parse
from attent.text.tokenizer import CharTokenizer, WordTokenizer
from attent.training.progress import Progress

ENGLISH, FRENCH = "the black dog sings", "le chien noir chante"
MakePage = Callable[..., Path]
TRAINING = '[training]\nupdates = 40\nbatch_pairs = 16\nlearning_rate = 1e-2\nprecision = "float32"\nthreads = 1\n'
SIZES = "layers = 2\nwidth = 16\nfeed_forward = 16\nheads = 2\ndropout = 0.0\n"
LINES = [
    f"the {subject} {end}"
    for subject in ("dog", "cat", "<b>dog</b>", "black dog", "black cat", "old cat", "old dog", "bird")
    for end in ("was tired , so it slept .", "was happy .", "slept .")
]


@pytest.fixture(scope="session")
def translating(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function that writes the run folder of an untrained translator, whose weights are 16-bit numbers."""

    def make(kind: str, *, words: bool = False, **changes: Any) -> Path:
        source, target = CharTokenizer("abcde "), CharTokenizer("<img>012")
        if words:
            source, target = (
                WordTokenizer([*(f" {word}" for word in side.split()), ","]) for side in (ENGLISH, FRENCH)
            )
        settings: Any
        if kind == "rnn":
            settings = RnnSettings(width=16, embedding_width=12, **changes)
        else:
            small = {"encoder_layers": 1, "decoder_layers": 2, "width": 16, "feed_forward": 17, "heads": 2}
            settings = TransformerSettings.model_validate(small | {"share_embeddings": "none"})
        torch.manual_seed(4)
        model = build(settings, source.size, target.size)
        with torch.no_grad():
            for parameter in model.parameters():
                # larger weights, so that rounding decides nothing, and those that a page stores
                parameter.copy_((1.5 * parameter).half())
        folder = tmp_path_factory.mktemp(kind) / "run"
        with RunWriter(folder) as run:
            kinds = dict.fromkeys(("source", "target"), "word" if words else "char")
            run.finish(RunConfig(model=settings, tokenizers=kinds), model, source, target)
        return folder

    return make


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str], Path]:
    """A function that trains a small run of a task on a corpus, given as a table of settings with {folder} in it."""

    def make(task: str, corpus: str, model: str = SIZES) -> Path:
        folder = tmp_path_factory.mktemp(task)
        (folder / "train.txt").write_text("\n".join(LINES), encoding="utf-8")
        (folder / "a.tsv").write_text(
            "".join(f"{line}\t<b>{line.split()[-2]}</b>\n" for line in LINES), encoding="utf-8"
        )
        tables = f'task = "{task}"\n{corpus.format(folder=folder)}\n[model]\n{model}{TRAINING}'
        follow(parse(tables, "small.toml"), folder / "run", progress=Progress(io.StringIO()))
        return folder / "run"

    return make


@pytest.fixture(scope="session")
def pictured(tmp_path_factory: pytest.TempPathFactory, trained: Any) -> Path:
    """The run folder of a captioner of pictures that are light on one side, with its pictures beside it."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is missing")
    folder = tmp_path_factory.mktemp("pictures")
    lines: list[str] = []
    for number in range(32):
        pixels = np.random.default_rng(number).integers(0, 60, (4, 6), dtype=np.uint8)
        pixels[:, slice(0, 2) if number % 2 else slice(4, 6)] += 150
        image.fromarray(pixels).save(folder / f"{number}.png")
        lines.append(f"{number}.png\tlight on the {'left' if number % 2 else 'right'}\n")
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")
    model = "encoder_layers = 1\ndecoder_layers = 1\nwidth = 16\nfeed_forward = 17\nheads = 2\ndropout = 0.0\n"
    run = trained("caption", f'[captions]\nsource = "{folder}"\npatch = 2\n', model)
    folder.rename(run.parent / "pictures")
    return run


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> MakePage:
    """A function that writes the page of a run folder."""
    return lambda run, examples=(): write_page(run, tmp_path_factory.mktemp("live") / "page.html", examples=examples)
