from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from attent.tasks.evaluation import training_texts
from attent.tasks.fill_mask.fill_mask import load
from attent.tasks.fill_mask.task import MaskedLMReport, MaskedLMScore, masked_lm_lines


def test_a_text_is_guessed_beside_counts(attent, filling_folder: Path) -> None:
    text = filling_folder.parent / "train.txt"
    done = attent("evaluate", filling_folder, "--text", text, "--json")
    report = json.loads("\n".join(done.out))
    assert list(report["ways"]) == ["model", "unigram", "trigram, left", "trigram, both sides"]
    assert (report["lines"], report["unknown"]) == (8, 0)
    assert report["ways"]["trigram, both sides"]["accuracy"] > report["ways"]["unigram"]["accuracy"]
    second = attent("evaluate", filling_folder, "--text", text, "--against", text)
    assert (second.code, second.err) == (0, [f"guessing every word of 8 lines of {text}"])
    assert len(second.out) == 5


def test_without_its_training_text_there_are_no_yardsticks(attent, filling_folder: Path, tmp_path: Path) -> None:
    text, train = filling_folder.parent / "train.txt", tmp_path / "some.txt"
    train.write_text("the dog slept .\n", encoding="utf-8")
    text.rename(tmp_path / "gone.txt")
    try:
        done = attent("evaluate", filling_folder, "--text", train)
    finally:
        (tmp_path / "gone.txt").rename(text)
    assert done.code == 0
    missing = f"{text}, the training text of {filling_folder}, does not exist: name it by --against FILE"
    assert done.err[0] == f"no n-gram baselines: {missing}"
    assert [line.split()[0] for line in done.out] == ["model", "4"]


def test_what_was_left_out_is_said(attent, filling_folder: Path, tmp_path: Path) -> None:
    none, bird = tmp_path / "none", tmp_path / "bird.txt"
    assert attent("evaluate", filling_folder, "--text", none).err[-1].startswith(f"attent: {none} cannot be read: ")
    bird.write_text("bird\n", encoding="utf-8")
    done = attent("evaluate", filling_folder, "--text", bird)
    assert done.err[-1] == f"attent: {bird} has no word that this model knows"
    lines = masked_lm_lines(MaskedLMReport(3, 20, 2, 0, {"model": MaskedLMScore(50.0, 12.345)}))
    assert lines == [
        "model  top-1  50.00 %  perplexity    12.35",
        "20 blanks, one at a time, in 3 lines; 2 words that the model does not know left out",
    ]


def test_what_is_counted_is_what_wastraining_texts(attent, tmp_path: Path) -> None:
    """Neither what the run was validated on nor what was too long for it."""
    (tmp_path / "train.txt").write_text(
        "the dog slept .\nthe cat ran .\na bird a bird a bird a bird\n" * 4, encoding="utf-8"
    )
    (tmp_path / "valid.txt").write_text("the cat ran .\n", encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(
        f'task = "fill-mask"\n[lines]\ntrain = "{tmp_path}/train.txt"\nvalid = "{tmp_path}/valid.txt"\n'
        'tokenizer = "word"\n'
        "maximum_length = 6\n[model]\nlayers = 1\nwidth = 8\nfeed_forward = 7\nheads = 2\n[training]\nupdates = 2\n"
        "batch_pairs = 4\n",
        encoding="utf-8",
    )
    assert attent("train", "--config", tmp_path / "recipe.toml", "--out", tmp_path / "run").code == 0
    counted = training_texts(tmp_path / "run", (tokenizer := load(tmp_path / "run").tokenizer), print)
    assert counted is not None
    assert [tokenizer.decode(tokens) for tokens in counted] == ["the dog slept ."] * 4


def test_what_is_held_out_is_judged(attent, classifying_folder: Path) -> None:
    report = json.loads("\n".join(attent("evaluate", classifying_folder, "--json").out))
    assert (report["examples"], report["labels"]) == (2, ["x", "y"])
    assert np.sum(report["confusion"]) == 2
    assert (
        json.loads((classifying_folder / "config.json").read_text())["results"]["validation"]["accuracy"]
        == report["accuracy"]
    )
    assert f"accuracy  {report['accuracy']:6.2f} %" in "\n".join(attent("evaluate", classifying_folder).out)


def test_other_examples_are_judged(attent, classifying_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "b.tsv").write_text("\nsome\tx\n" + "e" * 12 + "\tx\n" + "e" * 11 + "\ty\nno label\n")
    done = attent("evaluate", classifying_folder, "--labelled", tmp_path / "b.tsv")
    assert done.code == 0 and "2 examples" in "\n".join(done.out)
    errors = "\n".join(done.err)
    assert "1 dropped: longer than the 11 tokens, vectors or patches that this model can read (line 3)" in errors
    assert "1 dropped: no tab between text and label (line 5)" in errors

    # a label that the run does not know is refused
    (tmp_path / "b.tsv").write_text("some\tz\n")
    done = attent("evaluate", classifying_folder, "--labelled", tmp_path / "b.tsv")
    assert done.code == 2 and "the run does not know the label 'z'; it knows x, y" in done.err[-1]
    np.savez(tmp_path / "v.npz", x=np.random.rand(2, 5, 3), y=["x", "y"])
    done = attent("evaluate", classifying_folder, "--images", tmp_path / "v.npz")
    assert done.code == 2 and "the run reads texts" in done.err[-1]
