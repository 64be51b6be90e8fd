from __future__ import annotations

from pathlib import Path

from attent.attention.masks import Prefix, Window
from attent.tasks.fill_mask import fill_mask
from attent.tasks.translation.translator import load
from attent.text import word_vectors
from attent.views.render_walk import walk_page
from attent.views.walk import walk, walk_run


def test_a_text_is_walked_through_with_the_options_given(attent) -> None:
    options = "--heads 2 --score general --mask causal --seed 3 --width 6 --normalizer sparsemax"
    done = attent("walk", "a b c", *options.split())
    expected = walk("a b c", heads=2, score="general", mask="causal", seed=3, width=6, normalizer="sparsemax")
    assert (done.code, done.out) == (0, str(expected).splitlines())


def test_a_position_a_mask_a_second_text_vectors_and_the_whole_layer(attent, tmp_path: Path) -> None:
    done = attent("walk", "a b c", "--position", "sinusoidal", "--mask", "window:0,1|prefix:1", "--layer", "whole")
    assert done.out == str(walk("a b c", position="sinusoidal", mask=Window(0, 1) | Prefix(1), whole=True)).splitlines()
    done = attent("walk", "a b c", "--position", "alibi", "--cross", "d e")
    assert done.out == str(walk("a b c", position="alibi", cross="d e")).splitlines()
    file = tmp_path / "vectors.txt"
    file.write_text("a 1 2 3\nb 4 5 6\n", encoding="utf-8")
    done = attent("walk", "A b", "--vectors", file)
    assert done.out == str(walk("A b", vectors=word_vectors.read(file))).splitlines()
    file.write_text("a 1 2 3\nb 4 5 6\n, 7 8 9\n", encoding="utf-8")
    done = attent("walk", "A, b", "--vectors", file)
    assert done.out == str(walk("A , b", vectors=word_vectors.read(file))).splitlines()
    # words without a vector are left out if two are left
    done = attent("walk", "The a, the b c.", "--vectors", file, "--cross", "b a d")
    assert done.out == str(walk("a , b", cross="b a", vectors=word_vectors.read(file))).splitlines()
    reports = ["left out, without a vector: 'The', 'the', 'c', '.'", "left out, without a vector: 'd'"]
    assert (done.code, done.err) == (0, reports)
    done = attent("walk", "The a", "--vectors", file)
    assert (done.code, done.out, done.err) == (2, [], ["attent: there is no vector for 'The'"])
    # without a text the cat sits on the mat
    assert attent("walk").out == str(walk("The cat sat on the mat")).splitlines()
    assert not any("scaled" in line for line in attent("walk", "--no-scale").out)


def test_runs_of_every_task(attent, run_folder: Path, filling_folder: Path) -> None:
    done = attent("walk", filling_folder, "the dog was [MASK] .", "--layer", "whole")
    assert done.out == str(walk_run(fill_mask.load(filling_folder), "the dog was [MASK] .", whole=True)).splitlines()
    assert done.code == 0 and any("probabilities = softmax(logits)" in line for line in done.out)
    done = attent("walk", run_folder, "3 mars 2026", "--kind", "cross", "--layer", 0, "--head", 1)
    assert done.out == str(walk_run(load(run_folder), "3 mars 2026", kind="cross", layer=0, head=1)).splitlines()


def test_the_page_of_a_walk(attent, tmp_path: Path) -> None:
    done = attent("walk", "good dog", "--out", tmp_path / "walk.html")
    assert done.out == str(walk("good dog")).splitlines()
    assert done.err == [f"written to {tmp_path / 'walk.html'}"]
    assert (tmp_path / "walk.html").read_text(encoding="utf-8") == walk_page(walk("good dog")).html


def test_random_numbers_are_those_of_seed_0(attent) -> None:
    assert attent("walk", "The cat sat", "--random").out == attent("walk", "The cat sat", "--seed", 0).out
    assert attent("walk", "The cat sat", "--random").out != attent("walk", "The cat sat").out


def test_a_text_may_be_longer_than_a_path(attent) -> None:
    done = attent("walk", "a dog and " * 40)
    assert done.code == 0 and any("The weights at a glance" in line for line in done.out)
