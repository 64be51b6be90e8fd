import os
import threading
from pathlib import Path

import pytest

from attent.errors import ArgumentError, AttentError, UnknownNameError
from attent.tasks.settings import demo, parse, read

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "src" / "attent" / "configs"
RECIPES = sorted([*(ROOT / "configs").glob("*.toml"), *SHIPPED.glob("*.toml")])
LEAST = "[training]\nupdates = 5\nbatch_pairs = 8\n"


def test_parts_that_are_not_mentioned_keep_their_defaults() -> None:
    settings = parse(LEAST + '[model]\npreset = "small"\nheads = 8', "some.toml")
    assert settings.dates.locales == "demo"
    assert (settings.model.width, settings.model.heads) == (256, 8)
    assert settings.training.updates == 5
    model = parse(LEAST + '[model]\nkind = "rnn"\npreset = "lium"\ncell = "lstm"', "some.toml").model
    assert (model.kind, model.cell, model.embedding_width) == ("rnn", "lstm", 128)
    assert demo() == read(SHIPPED / "dates-demo.toml")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_every_recipe_can_be_read_and_says_why_on_every_line(path: Path) -> None:
    read(path)
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("[")]
    assert [line for line in lines if "#" not in line] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[training]\nupdate = 5",
            r"key in \[training\] of some\.toml, 'update'; did you mean 'updates'\? \(known: ac",
        ),
        (LEAST + "[modle]", r"table in some\.toml, 'modle'; did you mean 'model'\? \(known: captions, dates, images"),
        (LEAST + '[model]\npreset = "tinny"', r"some\.toml: model: unknown preset 'tinny'; did you mean 'tiny'\?"),
        (LEAST + '[model]\nnorm = "prae"', r"model\.norm in .*, 'prae'; did you mean 'pre'\? \(known: post, pre\)"),
        (LEAST + '[model]\nkind = "rrn"', r"some\.toml: model: unknown kind 'rrn'; did you mean 'rnn'\? \(known: dec"),
        (LEAST + '[model]\nkind = "rnn"\nheads = 3', r"key in \[model\] of some\.toml, 'heads' \(known: attention, "),
        (LEAST + "[model]\nheads = 3", r"some\.toml: model: heads must divide width = 128, got 3"),
        (LEAST + '[dates]\nlocales = ["dee"]', r"some\.toml: dates\.locales: unknown locale 'dee'"),
        (LEAST + '[text]\ntrain = "a.tsv"\nvocab = 3', r"key in \[text\] of .*, 'vocab'; did you mean 'vocabulary'\?"),
        (LEAST + '[text]\ntrain = "a.tsv"\n[dates]', r"some\.toml: .*\[dates\] and \[text\] cannot both be the corpus"),
        ('task = "classify"\n' + LEAST + '[images]\nsource = ""', r"some\.toml: images\.source: string should have"),
        (LEAST + '[vectors]\nsource = ""', r"some\.toml: vectors\.source: string should have at least 1 char"),
        (LEAST + f"[model]\nencoder_layers = {10**30}", r"model: encoder_layers must be at most 10,000, got 1,0"),
        (LEAST.replace("5", "0"), r"some\.toml: training\.updates: input should be greater than or equal to 1, got 0"),
        ("", r"some\.toml: training is missing"),
        ("[training", r"some\.toml is not TOML: "),
        ("layerz = 3", r"some\.toml: training is missing; unknown table in some\.toml, 'layerz' \(known: captions, "),
        ("[trainig]\nupdates = 5", r"training is missing; unknown table .*, 'trainig'; did you mean 'training'\?"),
        (
            '[text]\ntrain = "a.tsv"\n[training]\nbatch_pair = 8\n[dates]\nlocale = 3',
            r"key in \[dates\] of .*, 'locale'",
        ),
        ("a = " + "[" * 100_000, r"some\.toml cannot be read as TOML: it is nested too deeply"),
        ("a = " + "9" * 5_000, r"some\.toml is not TOML: "),
        ("task = []\n" + LEAST, r"some\.toml: task: input should be 'translate', .*, got \[\]"),
        (LEAST + '[model]\nkind = "rnn"\npreset = []', r"some\.toml: model: unknown preset '\[\]'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text: str, message: str) -> None:
    with pytest.raises(AttentError, match=message) as caught:
        parse(text, "some.toml")
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, UnknownNameError) is str(caught.value).startswith("unknown ")


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"none\.toml cannot be read"):
        read(tmp_path / "none.toml")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    with pytest.raises(ArgumentError, match=r"zero\.toml cannot be read: it has more than 1,048,576 bytes"):
        read(tmp_path / "zero.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(ArgumentError, match=r"bytes\.toml cannot be read: it is not UTF-8"):
        read(tmp_path / "bytes.toml")
    if hasattr(os, "mkfifo"):  # settings come through a pipe
        os.mkfifo(pipe := tmp_path / "some.toml")
        writer = threading.Thread(target=pipe.write_text, args=(LEAST,))
        writer.start()
        assert read(pipe) == parse(LEAST, "some.toml")
        writer.join()
