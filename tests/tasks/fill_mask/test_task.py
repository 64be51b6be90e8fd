import io
import json
from pathlib import Path

import pytest

from attent.errors import ArgumentError
from attent.runs.config import read_config
from attent.tasks.fill_mask.fill_mask import load
from attent.tasks.recipe import follow, resume
from attent.tasks.settings import RunSettings, parse
from attent.training.progress import Progress

LINES = [f"the {noun} was {state} , so it {verb} ." for noun, state, verb in (
    ("dog", "tired", "slept"), ("cat", "tired", "slept"), ("dog", "happy", "ran"), ("cat", "happy", "ran"),
    ("man", "happy", "sang"), ("man", "tired", "slept"), ("dog", "hungry", "ate"), ("cat", "hungry", "ate"),
)]  # fmt: skip


def settings(folder: Path, **training: object) -> RunSettings:
    (folder / "train.txt").write_text("\n".join(LINES + [f"{line} yes" for line in LINES]) + "\n", encoding="utf-8")
    (folder / "valid.txt").write_text("\n".join([*LINES[:3], "dog " * 300]) + "\n", encoding="utf-8")
    base_settings = {"updates": 8, "batch_pairs": 4, "precision": "float32", "threads": 1, "learning_rate": 1e-2}
    message = "\n".join(f"{name} = {json.dumps(value)}" for name, value in (base_settings | training).items())
    return parse(
        f"""
        task = "fill-mask"
        [lines]
        train = {json.dumps(str(folder / "train.txt"))}
        valid = {json.dumps(str(folder / "valid.txt"))}
        [model]
        layers = 1
        width = 16
        feed_forward = 17
        heads = 2
        dropout = 0.1
        [training]
        {message}
        """,
        "small.toml",
    )


def test_lines_end_in_a_run_folder_that_fills_blanks(tmp_path: Path) -> None:
    stream = io.StringIO()
    options = {"updates": 80, "batch_pairs": 13, "warmup": 5, "schedule": "constant"}
    results = follow(settings(tmp_path, **options), tmp_path / "run", progress=Progress(stream))
    assert set(results["validation"]) == {"lines", "loss", "accuracy"}
    config = read_config(tmp_path / "run")
    assert (config.task, config.tokenizers, list(config.corpus)) == ("fill-mask", {"text": "word"}, ["lines"])
    assert "valid.txt: 4 lines read, 3 kept\n  1 dropped: longer than the maximum length (line 4)" in stream.getvalue()
    assert results["validation"]["lines"] == 3
    (blank,) = load(tmp_path / "run").fill("the dog [MASK] tired , so it slept .")
    assert blank.guesses[0].word == "was"
    assert "3 dropped: also in validation" in stream.getvalue()


def test_other_lines_to_train_on_are_warned_of(tmp_path: Path) -> None:
    follow(settings(tmp_path, updates=2), tmp_path / "run")
    messages: list[str] = []
    for updates, more in ((3, ""), (4, "the man was happy .\n"), (5, "")):
        with (tmp_path / "train.txt").open("a") as file:
            file.write(more)
        stream = io.StringIO()
        resume(tmp_path / "run", {"updates": updates}, progress=Progress(stream))
        messages.append(stream.getvalue())
    warning = "warning: the training lines differ from those that the run started with"
    assert [warning in message for message in messages] == [False, True, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('task = "fill-mask"\n', r"some\.toml: .*task = 'fill-mask' needs a corpus: \[lines\]"),
        ('task = "fill-mask"\n[dates]\n', r"a run that fills blanks learns from \[lines\], got \[dates\] \(task ="),
        ('[lines]\ntrain = "a"\n', r"a run that translates learns from \[dates\] or \[text\], got \[lines\] \(task ="),
        ('task = "fill-mask"\n[lines]\ntrain = "a"\n[model]\nkind = "rnn"\n', r"model: a model of kind 'rnn' does"),
        ('task = "fill-mask"\n[lines]\ntrain = "a"\n[model]\ncls = true\n', r"model: task = 'fill-mask' needs cls ="),
        ('task = "fil-mask"\n', r"unknown task in some\.toml, 'fil-mask'; did you mean 'fill-mask'"),
        ('task = "fill-mask"\n[lines]\ntrain = "-"\nvalid = "-"\n', r"standard input \(-\) can be read only once"),
        ('task = "fill-mask"\n[lines]\ntrain = "a"\npacking = "text"\n', 'lines: packing = "text" is for task ='),
        ('task = "text-generation"\n', r"task = 'text-generation' needs a corpus: \[lines\]"),
        ('task = "text-generation"\n[lines]\ntrain = "a"\npacking = "texts"\n', "packing"),
        ('task = "text-generation"\n[lines]\ntrain = "a"\n[model]\nkind = "encoder"\n', "model: a model of kind"),
    ],
)
def test_settings_that_do_not_go_together_are_said(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        parse(f"{text}[training]\nupdates = 5\nbatch_pairs = 8\n", "some.toml")
