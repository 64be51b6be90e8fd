from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest


def test_training_leaves_a_run_that_translates_and_goes_on(attent, settings_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "mine"
    options = ("--updates", 3, "--seed", 5, "--threads", 1, "--set", "model.heads=4")
    done = attent("train", "--config", settings_file, "--out", out, *options)
    assert (done.code, done.out[0]) == (0, f"run: {out}")
    assert [line.split("  ")[0] for line in done.out[1:]] == ["held-out dates", "held-out combinations"]
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert (config["model"]["heads"], config["training"]["updates"], config["training"]["seed"]) == (4, 3, 5)
    translated = attent("translate", out, "en | 3/3/2026")
    # three updates teach nobody to write dates, and what is no date is reported
    assert (translated.code, len(translated.out)) == (2, 1)
    finished = attent("train", "--resume", out)
    says = f"attent: {out} is finished: give a new limit, --updates or --minutes"
    assert (finished.code, finished.err[-1]) == (2, says)
    done = attent("train", "--resume", out, "--steps", 4)
    assert (done.code, done.out[0], done.err[0]) == (0, f"run: {out}", f"resuming {out}")
    assert json.loads((out / "config.json").read_text())["training"]["outcome"]["updates"] == 4


def test_a_run_is_named_after_its_settings_and_replaced_only_if_asked(
    attent, settings_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train = ("train", "--config", settings_file)
    done = attent(*train)
    assert (done.code, done.out[0]) == (0, f"run: {Path('runs') / 'small'}")
    repeated = attent(*train)
    assert (repeated.code, repeated.err[-1]) == (2, f"attent: {Path('runs') / 'small'} already exists")
    assert attent(*train, "--replace").code == 0


def test_ctrl_c_says_how_to_go_on(attent, settings_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from attent.training.loop import Training

    learn = Training.train_step

    def interrupted(training: Training) -> None:
        learn(training)
        signal.raise_signal(signal.SIGINT)

    out = tmp_path / "mine"
    with monkeypatch.context() as patched:
        patched.setattr(Training, "train_step", interrupted)
        done = attent("train", "--config", settings_file, "--out", out)
    saved = f"saved after update 1; to resume: attent train --resume {out}"
    assert (done.code, done.err[-2:]) == (130, [saved, "attent: interrupted"])
    assert attent("train", "--resume", out).code == 0


@pytest.mark.slow
def test_a_run_is_adapted_by_one_command(attent, tmp_path: Path) -> None:
    for name, words in (("old", "the dog\tder Hund"), ("new", "a cat\teine Katze")):
        source, target = words.split("\t")
        lines = "".join(f"{source} {number}\t{target} {number}\n" for number in range(23))
        (tmp_path / f"{name}.tsv").write_text(lines, encoding="utf-8")
    sizes = [word for size in ("width=16", "feed_forward=16", "heads=2") for word in ("--set", f"model.{size}")]
    assert attent("train", "--train", tmp_path / "old.tsv", "--out", tmp_path / "old", "--updates", 1, *sizes).code == 0
    files = ("--init-from", tmp_path / "old", "--train", tmp_path / "new.tsv", "--replay", tmp_path / "old.tsv")
    done = attent("train", *files, "--freeze", "embeddings, encoder", "--out", tmp_path / "new", "--updates", 1)
    assert done.code == 0 and "the run's own model, learning rate 0.001" in done.err[0]
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert config["training"]["freeze"] == ["embeddings", "encoder"]
    preset = attent("train", *files, "--preset", "tiny")
    assert preset[::2] == (2, ["attent: --init-from keeps the sizes of its run: omit --preset"])


def test_pairs_alone_make_a_run_that_translates(attent, tmp_path: Path) -> None:
    lines = "".join(f"a dog {number} 🐶\tein hund {number} 🐶\n" for number in range(60))
    (tmp_path / "pairs.tsv").write_text(f"{lines}\nx\ty\tz\n", encoding="utf-8")
    sizes = ("width=16", "feed_forward=16", "encoder_layers=1", "decoder_layers=1")
    small = [word for size in sizes for word in ("--set", f"model.{size}")]
    files = ("--train", tmp_path / "pairs.tsv", "--out", tmp_path / "RUN")
    done = attent("train", *files, "--steps", 2, "--threads", 1, *small)
    assert done.code == 0
    assert "62 lines, suggested: preset tiny with dropout 0.3, 200 updates of 1,024 tokens" in done.err
    assert any("empty" in line for line in done.err)
    assert done.out[0] == f"run: {tmp_path / 'RUN'}" and "BLEU" in done.out[1]
    assert attent("translate", tmp_path / "RUN", "a dog 7 🐶").code == 0
    student = ("--train", tmp_path / "pairs.tsv", "--out", tmp_path / "student", *small)
    taught = attent("train", *student, "--teacher", tmp_path / "RUN", "--teacher", tmp_path / "RUN", "--steps", 1)
    assert taught.code == 0
    table = json.loads((tmp_path / "student" / "config.json").read_text())["training"]
    assert table["teacher"] == [str(tmp_path / "RUN")] * 2
    resumed = attent("train", "--resume", tmp_path / "student", "--teacher", tmp_path / "RUN")
    assert resumed[::2] == (2, ["attent: a resumed run keeps its settings: omit --teacher"])


def test_files_that_are_set_lie_in_the_folder_too(attent, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("\n".join(f"{n} a\tb {n}" for n in range(40)), encoding="utf-8")
    recipe, text = tmp_path / "recipe.toml", '[text]\ntrain = "none.tsv"\ntokenizer = "char"\n'
    recipe.write_text(f"{text}[training]\nupdates = 1\nbatch_pairs = 8\n", encoding="utf-8")
    files = ("--data", tmp_path, "--set", "text.train=pairs.tsv", "--out", tmp_path / "run")
    done = attent("train", "--config", recipe, *files)
    assert done.code == 0 and any("pairs.tsv: 40 lines read" in line for line in done.err)


def test_text_alone_makes_a_run_that_fills_blanks(attent, tmp_path: Path) -> None:
    lines = "".join(f"a dog {number} is happy\n" for number in range(60))
    (tmp_path / "lines.txt").write_text(f"{lines}\n", encoding="utf-8")
    small = ("--set", "model.width=16", "--set", "model.feed_forward=16", "--set", "model.layers=1")
    files = ("--text", "lines.txt", "--data", tmp_path, "--out", tmp_path / "RUN")
    done = attent("train", "--task", "fill-mask", *files, "--steps", 2, "--threads", 1, *small)
    assert done.code == 0
    assert "61 lines, suggested: preset tiny with dropout 0.3, 200 updates of 1,024 tokens" in done.err
    assert "  1 dropped: empty line (line 61)" in done.err
    assert done.out[1].startswith("validation  loss ")
    assert attent("fill", tmp_path / "RUN", "a [MASK] 7 is happy").code == 0
    assert attent("train", "--resume", tmp_path / "RUN", "--updates", 3).code == 0
