from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest


def test_training_leaves_a_run_that_translates(attent, settings_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "mine"
    done = attent(
        "train",
        "--config",
        settings_file,
        "--out",
        out,
        "--updates",
        3,
        "--seed",
        5,
        "--threads",
        1,
        "--set",
        "model.heads=4",
    )
    assert done.code == 0
    assert done.out[0] == f"run: {out}"
    assert [line.split("  ")[0] for line in done.out[1:]] == ["held-out dates", "held-out combinations"]
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert config["model"]["heads"] == 4
    assert (config["training"]["updates"], config["training"]["seed"]) == (3, 5)
    translated = attent("translate", out, "en | 3/3/2026")
    # three updates teach nobody to write dates, and what is no date is reported
    assert (translated.code, len(translated.out)) == (2, 1)


def test_a_run_is_replaced_only_if_asked(attent, settings_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    assert attent("train", "--config", settings_file, "--out", out).code == 0
    repeated = attent("train", "--config", settings_file, "--out", out)
    assert repeated.code == 2
    assert repeated.err[-1] == f"attent: {out} is there already"
    assert attent("train", "--config", settings_file, "--out", out, "--replace").code == 0


def test_runs_are_named_after_their_settings(
    attent, settings_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = attent("train", "--config", settings_file)
    assert (done.code, done.out[0]) == (0, f"run: {Path('runs') / 'small'}")


def test_a_run_goes_on(attent, settings_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    assert attent("train", "--config", settings_file, "--out", out, "--steps", 2, "--save-every", 1).code == 0
    finished = attent("train", "--resume", out)
    assert (finished.code, finished.err[-1]) == (
        2,
        f"attent: {out} is finished: give a new limit, --updates or --minutes",
    )
    seeded = attent("train", "--resume", out, "--seed", 3)
    assert (seeded.code, seeded.err) == (2, ["attent: a run that goes on keeps its settings: --resume takes no --seed"])
    done = attent("train", "--resume", out, "--steps", 4, "--threads", 1)
    assert (done.code, done.out[0]) == (0, f"run: {out}")
    assert json.loads((out / "config.json").read_text())["training"]["outcome"]["updates"] == 4


def test_the_folder_to_go_on_with_may_be_named_as_a_new_one_is(attent, settings_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine"
    assert attent("train", "--config", settings_file, "--out", out).code == 0
    for updates, arguments in enumerate(
        (["--out", out, "--resume"], ["--resume", "--out", out], ["--resume", out]), start=3
    ):
        done = attent("train", *arguments, "--steps", updates)
        assert (done.code, done.out[0], done.err[0]) == (0, f"run: {out}", f"going on with {out}")
        assert json.loads((out / "config.json").read_text())["training"]["outcome"]["updates"] == updates
    assert attent("train", "--steps", 9, "--resume")[::2] == (
        2,
        ["attent: --resume takes a run folder: --resume RUN, or --out RUN --resume"],
    )
    printed = attent("train", "--out", out, "--resume", tmp_path / "other")
    assert printed[::2] == (2, ["attent: a run that goes on keeps its settings: --resume takes no --out"])


def test_another_run_starts_from_it(attent, settings_file: Path, run_folder: Path, tmp_path: Path) -> None:
    done = attent(
        "train", "--config", settings_file, "--init-from", run_folder, "--out", tmp_path / "tuned", "--updates", 1
    )
    assert done.code == 0


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
    assert done.code == 130
    assert done.err[-2:] == [f"saved after update 1; to go on: attent train --resume {out}", "attent: interrupted"]
    assert attent("train", "--resume", out).code == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--set", "training.learningrate=1"], "did you mean 'learning_rate'"),
        (["--set", "model.heads=3"], "heads must divide width"),
        (["--minutes", "-1"], "training.minutes"),
        (["--corpus", "dates"], "say what to train"),
        (["--out", __file__ + "/run"], "cannot be written"),
    ],
)
def test_what_cannot_be_trained(attent, settings_file: Path, tmp_path: Path, options: list[str], says: str) -> None:
    done = attent(
        "train", "--config", settings_file, *(["--out", tmp_path / "run"] if "--out" not in options else []), *options
    )
    assert done[:2] == (2, [])
    assert says in done.err[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [["--train", "train.zh"], ["--train", "pairs.tsv", "--valid", "valid.de.gz"]])
def test_a_name_that_no_file_of_pairs_has_is_refused_before_anything_is_suggested(
    attent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("train.zh", "pairs.tsv", "valid.de.gz"):
        Path(name).write_text("a\tb\n", encoding="utf-8")
    done = attent("train", *options)
    assert done == (2, [], [f"attent: a file of pairs is named .tsv or .jsonl (and perhaps .gz), got {options[-1]}"])


@pytest.mark.parametrize(
    "option",
    [
        "--train",
        "--train-source",
        "--valid-target",
        "--text",
        "--valid-text",
        "--images",
        "--size",
        "--labelled",
        "--valid-labelled",
    ],
)
def test_a_run_that_goes_on_keeps_its_corpus(attent, tmp_path: Path, option: str) -> None:
    assert attent("train", "--resume", tmp_path, option, "a").err == [
        f"attent: a run that goes on keeps its corpus: --resume takes no {option}"
    ]


@pytest.mark.parametrize("option", ["--source-vectors", "--target-vectors", "--text-vectors"])
def test_a_run_that_goes_on_keeps_its_word_vectors(attent, tmp_path: Path, option: str) -> None:
    message = attent("train", "--resume", tmp_path, option, "a").err
    assert message == [f"attent: a run that goes on keeps its settings: --resume takes no {option}"]


@pytest.mark.parametrize(
    ("option", "main", "table"),
    [
        ("--size", "--images", "images"),
        ("--valid-text", "--text", "lines"),
        ("--valid-labelled", "--labelled", "labelled"),
        ("--valid", "--train", "text"),
    ],
)
def test_what_is_beside_a_corpus_is_none(attent, settings_file: Path, option: str, main: str, table: str) -> None:
    for arguments in ([], ["--config", settings_file]):
        message = attent("train", *arguments, option, "8").err
        assert message == [f"attent: {option} goes with {main}, or with a --config of [{table}]"]


def test_a_run_is_adapted_by_one_command(attent, tmp_path: Path) -> None:
    for name, words in (("old", "the dog\tder Hund"), ("new", "a cat\teine Katze")):
        source, target = words.split("\t")
        lines = "".join(f"{source} {number}\t{target} {number}\n" for number in range(23))
        (tmp_path / f"{name}.tsv").write_text(lines, encoding="utf-8")
    sizes = [word for size in ("width=16", "feed_forward=16", "heads=2") for word in ("--set", f"model.{size}")]
    assert attent("train", "--train", tmp_path / "old.tsv", "--out", tmp_path / "old", "--updates", 1, *sizes).code == 0
    files = ("--init-from", tmp_path / "old", "--train", tmp_path / "new.tsv", "--replay", tmp_path / "old.tsv")
    done = attent("train", *files, "--freeze", "embeddings, encoder", "--out", tmp_path / "new", "--updates", 1)
    assert done.code == 0
    assert "the run's own model, learning rate 0.001" in done.err[0]
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert config["training"]["freeze"] == ["embeddings", "encoder"]
    repeated = attent("train", "--resume", tmp_path / "new", "--freeze", "encoder")
    assert repeated[::2] == (2, ["attent: a run that goes on keeps its settings: --resume takes no --freeze"])
    preset = attent("train", *files, "--preset", "tiny")
    assert preset[::2] == (2, ["attent: --init-from takes the sizes of its run, so --preset has no say"])
    single = attent("train", "--replay", tmp_path / "old.tsv")
    assert single[::2] == (2, ["attent: --replay goes with --train, or with a --config of [text]"])


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.tsv"
    file.write_text(
        "".join(f"a dog {number} 🐶\tein hund {number} 🐶\n" for number in range(60)) + "\nx\ty\tz\n", encoding="utf-8"
    )
    return file


def test_pairs_alone_make_a_run_that_translates(attent, pairs: Path, tmp_path: Path) -> None:
    small = (
        "--set",
        "model.width=16",
        "--set",
        "model.feed_forward=16",
        "--set",
        "model.encoder_layers=1",
        "--set",
        "model.decoder_layers=1",
    )
    done = attent("train", "--train", pairs, "--out", tmp_path / "RUN", "--steps", 2, "--threads", 1, *small)
    assert done.code == 0
    assert "62 lines, suggested: preset tiny with dropout 0.3, 200 updates of 1,024 tokens" in done.err
    assert any("empty" in line for line in done.err)
    (tmp_path / "none.tsv").touch()
    assert attent("train", "--train", tmp_path / "none.tsv").err == [f"attent: {tmp_path / 'none.tsv'}: empty"]
    assert done.out[0] == f"run: {tmp_path / 'RUN'}"
    assert "BLEU" in done.out[1]
    assert attent("translate", tmp_path / "RUN", "a dog 7 🐶").code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--train", "nowhere.tsv"], "nowhere.tsv"),
        (["--train", "nowhere.tsv", "--corpus", "dates"], "say what to train"),
        (["--corpus", "dates", "--preset", "tiny"], "--preset goes with --train"),
        ([], "say what to train"),
    ],
)
def test_what_cannot_be_trained_on(attent, arguments: list[str], says: str) -> None:
    done = attent("train", *arguments)
    assert done.code == 2
    assert len(done.err) == 1
    assert says in done.err[0]


def test_a_folder_needs_files_and_must_be_there(attent, tmp_path: Path) -> None:
    done = attent("train", "--corpus", "dates", "--data", tmp_path, "--out", tmp_path / "run")
    says = "--data is where the files of [text] or [lines] or [images] or [labelled] lie, and these settings have none"
    assert (done.code, done.err) == (2, [f"attent: {says}"])
    done = attent("train", "--train", "a.tsv", "--data", tmp_path / "none", "--out", tmp_path / "run")
    assert done.code == 2
    done = attent("train", "--resume", tmp_path, "--data", tmp_path)
    assert (done.code, done.err) == (2, ["attent: a run that goes on keeps its settings: --resume takes no --data"])


def test_pairs_of_a_folder_are_trained_on(attent, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "pairs.tsv").write_text("\n".join(f"{n} a\tb {n}" for n in range(40)), encoding="utf-8")
    done = attent(
        "train", "--train", "pairs.tsv", "--data", tmp_path / "corpus", "--out", tmp_path / "run", "--steps", 2
    )
    assert done.code == 0
    assert any("pairs.tsv: 40 lines read" in line for line in done.err)


def test_files_that_are_set_lie_in_the_folder_too(attent, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("\n".join(f"{n} a\tb {n}" for n in range(40)), encoding="utf-8")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        '[text]\ntrain = "none.tsv"\ntokenizer = "char"\n[training]\nupdates = 1\nbatch_pairs = 8\n', encoding="utf-8"
    )
    arguments = (
        "train",
        "--config",
        recipe,
        "--data",
        tmp_path,
        "--set",
        "text.train=pairs.tsv",
        "--out",
        tmp_path / "run",
    )
    assert attent(*arguments).code == 0


def test_text_alone_makes_a_run_that_fills_blanks(attent, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text(
        "".join(f"a dog {number} is happy\n" for number in range(60)) + "\n", encoding="utf-8"
    )
    small = ("--set", "model.width=16", "--set", "model.feed_forward=16", "--set", "model.layers=1")
    files = ("--text", "lines.txt", "--data", tmp_path, "--out", tmp_path / "RUN")
    done = attent("train", "--task", "fill-mask", *files, "--steps", 2, "--threads", 1, *small)
    assert done.code == 0
    assert "61 lines, suggested: preset tiny with dropout 0.3, 200 updates of 1,024 tokens" in done.err
    assert "  1 dropped: empty line (line 61)" in done.err
    assert done.out[1].startswith("validation  loss ")
    assert attent("fill", tmp_path / "RUN", "a [MASK] 7 is happy").code == 0
    assert attent("train", "--resume", tmp_path / "RUN", "--updates", 3).code == 0


def test_a_task_without_its_files_is_told_which(attent, tmp_path: Path) -> None:
    done = attent("train", "--task", "fill-mask")
    assert done.err == ["attent: say what to train: one of --text FILE, --config FILE.toml and --resume RUN"]
    done = attent("train", "--task", "fill-mask", "--corpus", "dates", "--out", tmp_path / "run")
    assert done.err == ["attent: --task fill-mask is not what the settings are for: their task is 'translate'"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--task", "classify"], "say what to train: one of --images SOURCE, --labelled FILE, --config"),
        (
            ["--task", "classify", "--images", "nowhere"],
            "there are no pictures nowhere: it is neither 'digits', nor a folder, nor an .npz",
        ),
        (["--images", "digits", "--labelled", "a.tsv"], "files for [images] and for [labelled] are for two runs"),
        (
            ["--task", "translate", "--images", "digits"],
            "these files are for --task classify, not for --task translate",
        ),
        (["--size", "8"], "--size goes with --images"),
        (["--labelled", "nowhere.tsv"], "nowhere.tsv cannot be read"),
        (
            ["--task", "clasify", "--labelled", "a.tsv"],
            (
                "unknown task 'clasify'; did you mean 'classify'? (known: classify, fill-mask, language-model, "
                "text-generation, translate)"
            ),
        ),
    ],
)
def test_what_cannot_be_classified(attent, arguments: list[str], says: str) -> None:
    done = attent("train", *arguments)
    assert done.code == 2
    assert len(done.err) == 1
    assert says in done.err[0]
