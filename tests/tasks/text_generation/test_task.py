import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from attent.runs.config import read_config
from attent.search.settings import GenerationSettings
from attent.tasks.recipe import follow, resume, validate
from attent.tasks.settings import RunSettings, parse
from attent.tasks.task import Vocabularies
from attent.tasks.text_generation.task import TextGenerationTask
from attent.tasks.text_generation.text_generator import load
from attent.training.progress import Progress

LINES = [f"the {noun} was {state} , so it {verb} ." for noun, state, verb in (
    ("dog", "tired", "slept"), ("cat", "tired", "slept"), ("dog", "happy", "ran"), ("cat", "happy", "ran"),
    ("man", "happy", "sang"), ("man", "tired", "slept"), ("dog", "hungry", "ate"), ("cat", "hungry", "ate"),
)]  # fmt: skip


def settings(folder: Path, lines: dict[str, object] | None = None, **training: object) -> RunSettings:
    (folder / "train.txt").write_text("\n".join(LINES + [f"{line} yes" for line in LINES]) + "\n", encoding="utf-8")
    (folder / "valid.txt").write_text("\n".join([*LINES[:3], "dog " * 300]) + "\n", encoding="utf-8")
    tables = {
        "lines": {"train": str(folder / "train.txt"), "valid": str(folder / "valid.txt"), "tokenizer": "word"}
        | (lines or {}),
        "model": {"layers": 1, "width": 16, "feed_forward": 17, "heads": 2, "norm": "pre", "position": "rotary"},
        "training": {"updates": 8, "batch_pairs": 4, "precision": "float32", "threads": 1, "learning_rate": 1e-2}
        | {"label_smoothing": 0.0}
        | training,
    }
    text = "\n".join(
        f"[{table}]\n" + "\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items())
        for table, values in tables.items()
    )
    return parse(f'task = "text-generation"\n{text}', "small.toml")


def test_lines_end_in_a_run_folder_that_goes_on_with_them(tmp_path: Path) -> None:
    stream = io.StringIO()
    options = {"updates": 60, "batch_pairs": 13, "warmup": 5, "schedule": "constant"}
    results = follow(settings(tmp_path, **options), tmp_path / "run", progress=Progress(stream))
    assert set(results["validation"]) == {"lines", "loss"}
    assert results["validation"]["lines"] == 3
    config = read_config(tmp_path / "run")
    assert (config.task, config.tokenizers, list(config.corpus)) == ("text-generation", {"text": "word"}, ["lines"])
    assert "valid.txt: 4 lines read, 3 kept\n  1 dropped: longer than the maximum length (line 4)" in stream.getvalue()
    generator = load(tmp_path / "run")
    assert generator.generate("the cat was tired , so", GenerationSettings(max_new_tokens=1)).text.endswith(" it")
    assert validate(tmp_path / "run", generator.model, lambda line: None) == results


def test_running_text_is_learnt_in_windows(tmp_path: Path) -> None:
    lines = {"packing": "text", "maximum_length": 11}
    results = follow(settings(tmp_path, lines, updates=30, warmup=3), tmp_path / "run")
    # three lines of nine tokens and their ends, and the line of 300 and its own: nothing is too long
    assert results["validation"]["windows"] == (3 * 10 + 301) // 11
    assert results["validation"]["loss"] < 8
    generator = load(tmp_path / "run")
    assert (generator.context, generator.stops_at_line_end) == (11, False)
    assert len(generator.generate("the dog", GenerationSettings(max_new_tokens=37)).tokens) == 37


def test_a_run_that_is_broken_off_ends_with_the_weights_of_one_that_is_not(tmp_path: Path) -> None:
    whole = settings(tmp_path, {"packing": "text", "maximum_length": 7}, save_every=2, keep_best=0)
    follow(whole, tmp_path / "whole")
    part = whole.model_copy(update={"training": whole.training.model_copy(update={"updates": 3})})
    follow(part, tmp_path / "run")
    resume(tmp_path / "run", {"updates": 8})
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("lines", [{}, {"packing": "text", "maximum_length": 7}], ids=["lines", "text"])
def test_other_processes_open_what_one_has_encoded(lines: dict[str, object], tmp_path: Path) -> None:
    task, run_settings = TextGenerationTask(), settings(tmp_path, lines)
    corpus = task.corpus(run_settings)
    vocabularies = replace(task.learn_vocabularies(corpus), longest=23)
    encoded = task.encode(corpus, vocabularies)
    stored = Vocabularies(vocabularies.kinds, vocabularies.tokenizers, longest=23)
    reference = task.open_shared(run_settings, corpus.folder, stored)
    assert encoded.digest() == reference.digest()
    first, second = (data.augmented(np.array([0, 2, 1]), 1, 2) for data in (encoded, reference))
    assert torch.equal(first.inputs, second.inputs)
    assert torch.equal(first.labels, second.labels)
    if lines:  # no window is longer than the model reads
        data = task.encode(corpus, replace(vocabularies, longest=5))
        assert data.batch(np.arange(2)).inputs.shape[1] <= 5


def test_pieces_unless_the_recipe_says_otherwise(tmp_path: Path) -> None:
    text = f"[lines]\ntrain = {json.dumps(str(tmp_path / 'a.txt'))}\n[training]\nupdates = 1\nbatch_pairs = 1\n"
    for task, kind in (("text-generation", "bpe"), ("fill-mask", "word")):
        assert parse(f'task = "{task}"\n{text}', "a.toml").lines.tokenizer == kind
