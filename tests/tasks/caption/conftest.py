"""Small pictures, light on one side, with captions, and a run trained on them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from attent.tasks.recipe import follow
from attent.tasks.settings import RunSettings, parse
from attent.training.progress import Progress

# The settings of the smallest model of each kind.
MODELS = {
    "transformer": "encoder_layers = 1\ndecoder_layers = 1\nwidth = 16\nfeed_forward = 17\nheads = 2\ndropout = 0.0",
    "rnn": 'kind = "rnn"\nencoder_layers = 1\nwidth = 32\nembedding_width = 14',
}


def light_picture(side: str, seed: int) -> np.ndarray:
    """Return a picture (4, 6) that is light on the left or on the right."""
    pixels = np.random.default_rng(seed).integers(0, 60, (4, 6), dtype=np.uint8)
    pixels[:, slice(0, 2) if side == "left" else slice(4, 6)] += 150
    return pixels


def write_pictures(folder: Path, parts: dict[str, int]) -> Path:
    """Write pictures and the .tsv of each part, with this many pictures each."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is missing")
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (part, count) in enumerate(parts.items()):
        lines: list[str] = []
        for number in range(count):
            side = ("left", "right")[number % 2]
            image.fromarray(light_picture(side, 100 * seed + number)).save(folder / f"{part}{number}.png")
            lines.append(f"{part}{number}.png\tlight on the {side}\n")
        (folder / f"{part}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


def small_settings(source: Path | str, kind: str = "transformer", table: str = "", **training: object) -> RunSettings:
    """Return the settings of a small run."""
    given = {"updates": 100, "batch_pairs": 8, "precision": "float32", "threads": 1, "learning_rate": 1e-2, "warmup": 5}
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in (given | training).items())
    corpus = f"[captions]\nsource = {json.dumps(str(source))}\npatch = 2\n{table}"
    return parse(f'task = "caption"\n{corpus}\n[model]\n{MODELS[kind]}\n[training]\n{lines}', "small.toml")


@pytest.fixture(scope="session")
def light() -> Callable[[str, int], np.ndarray]:
    """See `light_picture`."""
    return light_picture


@pytest.fixture(scope="session")
def write() -> Callable[[Path, dict[str, int]], Path]:
    """See `write_pictures`."""
    return write_pictures


@pytest.fixture(scope="session")
def make_settings() -> Callable[..., RunSettings]:
    """See `small_settings`."""
    return small_settings


@pytest.fixture(scope="session")
def captioned(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a trained run of a kind of model, beside its corpus `pictures`."""
    runs: dict[str, Path] = {}

    def run(kind: str) -> Path:
        if kind not in runs:
            folder = tmp_path_factory.mktemp(kind)
            pictures = write_pictures(folder / "pictures", {"train": 40, "valid": 8, "test": 6})
            follow(small_settings(pictures, kind), folder / "run", progress=Progress(io.StringIO()))
            runs[kind] = folder / "run"
        return runs[kind]

    return run
