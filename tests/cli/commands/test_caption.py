from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from attent.errors import ArgumentError
from attent.explorer.explorer import Explorer
from attent.tasks.caption.captioner import load

SMALL = ("--set", "model.width=16", "--set", "model.feed_forward=16", "--set", "training.batch_pairs=8", "--updates", 3)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten pictures with a caption beside each."""
    image, folder = pytest.importorskip("PIL.Image", reason="Pillow is missing"), tmp_path_factory.mktemp("pictures")
    for number in range(10):
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8), np.uint8)
        image.fromarray(pixels).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(f"picture number {number % 3}\n")
    return folder


@pytest.fixture(scope="module")
def run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from attent.cli.app import run as command

    out = tmp_path_factory.mktemp("runs") / "run"
    options = ("train", "--task", "caption", "--images", corpus, "--out", out, *SMALL)
    assert command([str(option) for option in options]) == 0
    return out


def test_a_line_for_each_picture(attent, run: Path, corpus: Path) -> None:
    done = attent("caption", run, corpus)
    assert (done.code, len(done.out)) == (0, 10)
    files = (corpus / "3.png", corpus / "5.png")
    assert attent("caption", run, *files).out == [done.out[3], done.out[5]]
    assert [json.loads(line) for line in attent("caption", run, *files, "--json").out] == [
        {"name": str(file), "caption": text} for file, text in zip(files, (done.out[3], done.out[5]), strict=True)
    ]
    assert attent("caption", run, files[0], "--beam", 2).code == 0


def test_training_says_what_it_does(attent, corpus: Path, tmp_path: Path) -> None:
    done = attent("train", "--task", "caption", "--images", corpus, "--size", 4, "--out", tmp_path / "run", *SMALL)
    assert done.code == 0
    said = "captions: 9 of train, 1 of valid, 0 of test; pictures of 4 x 4 pixels in 4 patches"
    assert said in done.err
    assert any(line.startswith("10 examples, suggested: preset tiny, width 64") for line in done.err)
    assert done.out[0] == f"run: {tmp_path / 'run'}"
    assert done.out[1].startswith("valid  BLEU")


def test_evaluation(attent, refused, run: Path, corpus: Path, tmp_path: Path) -> None:
    stored = json.loads("\n".join(attent("evaluate", run, "--json").out))
    assert stored["valid"]["captions"] == 1
    given = attent("evaluate", run, "--images", corpus)
    assert (given.code, given.out[0].split()[-2:]) == (0, ["(10", "captions)"])
    assert attent("evaluate", run, "--images", corpus, "--beam", 2).code == 0
    assert "must be a .tsv or a folder" in refused("evaluate", run, "--images", tmp_path / "missing")
    assert refused("evaluate", run, "--text", corpus / "1.txt").endswith("not for one that captions")


def test_attention_over_the_picture(attent, refused, run: Path, corpus: Path, tmp_path: Path) -> None:
    picture = corpus / "1.png"
    done = attent("show", run, picture, "--translation", "picture number 1", "--out", tmp_path / "map.html")
    assert done.out[0] == "decoder.layers.0.cross_attention, mean over 4 heads"
    assert sum("patch␣" in line for line in done.out) == 4
    html = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert '"picture":{"grid":[4,4],"text":"source","before":0' in html
    assert '" picture"," number"," 1","\\u003c/s>"' in html
    assert attent("show", run, picture, "--kind", "encoder").out[0].startswith("encoder.layers.1.self_attention")
    assert "cannot be read" in refused("show", run, tmp_path / "missing.png")
    assert "captions: attent caption" in refused("ablate", run, tmp_path / "a.txt")
    walk = attent("walk", run, picture)
    assert walk.code == 0
    assert walk.out[0].startswith(f"encoder.layers.1.self_attention, head 0, step by step: {picture} →")
    assert refused("translate", run, "a").endswith(f"captions: attent caption {run} PICTURE")


@pytest.mark.slow
def test_words_are_drawn_over_the_picture(attent, run: Path, corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    for name in ("map.png", "map.svg"):
        done = attent("show", run, corpus / "1.png", "--translation", "picture number 1", "--out", tmp_path / name)
        assert (done.code, done.err) == (0, [f"drawn into {tmp_path / name}"])
    drawn = (tmp_path / "map.svg").read_text(encoding="utf-8")
    for title in ("1. picture", "2. number", "3. 1", "a row is about the token produced"):
        assert f"<!-- {title}" in drawn


def test_the_explorer_shows_one_picture(refused, run: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = load(run).scene(str(corpus / "2.png"))
    assert [group.name for group in scene.groups] == ["cross", "encoder", "decoder"]
    opened = list[Explorer]()

    def serve(explorer: Explorer, **options: object) -> None:
        opened.append(explorer)
        raise ArgumentError("no server in this test")

    monkeypatch.setattr("attent.explorer.server.ExploreServer", serve)
    assert refused("explore", run, "--text", corpus / "2.png") == "no server in this test"
    assert len(opened) == 1
    assert "exactly one text or picture" in refused("explore", run)
    assert "cannot be compared" in refused("explore", run, run, "--text", corpus / "2.png")


def test_what_cannot_be_trained_on(refused, corpus: Path, tmp_path: Path) -> None:
    train = ("train", "--task", "caption", "--out", tmp_path / "run")
    assert "--images FOLDER" in refused(*train)
    assert "must be a .tsv or a folder" in refused(*train, "--images", tmp_path / "missing")
    (tmp_path / "a.tsv").write_text(f"{corpus / '1.png'}\tcaption\n")
    assert "is outside of" in refused(*train, "--images", tmp_path / "a.tsv")
    assert "--size" in refused(*train, "--size", 4)
