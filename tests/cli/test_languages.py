"""Languages of a run, in every command that needs them; and texts that are not spaced as the run's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import attent as package

SEGMENTED = [
    "我 爱 北京 天安门 。",
    "今天 天气 很 好 ， 我们 去 公园 。",
    "他 昨天 买 了 一 本 书 。",
    "这 是 我 的 朋友 。",
]
ENGLISH = [
    "i love tian'anmen .",
    "the weather is fine , we go to the park .",
    "he bought a book .",
    "this is my friend .",
]
TRAINING = ("--updates", 2, "--threads", 1, "--preset", "tiny", "--set", "text.tokenizer=char")


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Sources cut into words, and their targets."""
    folder = tmp_path_factory.mktemp("sides")
    for name, lines in (("train.zh", SEGMENTED), ("train.en", ENGLISH)):
        # numbered, since pairs that occur twice are left out
        text = "".join(f"{line} {number}\n" for number in range(12) for line in lines)
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "train.zh", folder / "train.en"


@pytest.fixture
def run(attent, sides: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that names its languages."""
    out = tmp_path_factory.getbasetemp() / "named"
    if not out.exists():
        files = ("--train-source", sides[0], "--train-target", sides[1], "--source-language", "zh")
        assert attent("train", *files, "--target-language", "en", "--out", out, *TRAINING).code == 0
    return out


def test_languages_are_kept_and_said(attent, run: Path, run_folder: Path) -> None:
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    assert [config["corpus"]["text"][f"{side}_language"] for side in ("source", "target")] == ["zh", "en"]
    assert attent("describe", run).out[0].startswith(f"{run}: Transformer, zh → en, ")
    assert repr(package.load(run)).startswith("Translator: translates zh → en, Transformer with ")
    from attent.explorer.loaded_run import load_run

    assert load_run(run).name == "named · zh → en"
    # a run without languages is as before
    text = (run_folder / "config.json").read_text(encoding="utf-8")
    assert "_language" not in text and "spacing" not in text
    assert "→" not in attent("describe", run_folder).out[0]


def test_bleu_cuts_words_as_the_target_language_asks(attent, run: Path, sides: tuple[Path, Path]) -> None:
    files = ("--source", sides[0], "--target", sides[1], "--json")
    chosen = {"13a": (), "tok:zh": ("--target-language", "zh")}
    chosen["tok:none"] = ("--target-language", "ja", "--tokenize", "none")
    for signature, options in chosen.items():
        assert signature in json.loads("\n".join(attent("evaluate", run, *files, *options).out))["bleu_signature"]


def test_different_spacing_and_repetition_are_told_of_in_one_line(attent, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("\n".join(line.replace(" ", "") for line in SEGMENTED), encoding="utf-8")
    done = attent("translate", run, file, "--max-length", 3)
    assert (done.code, len(done.out)) == (0, 4)
    assert len(done.err) == 1
    assert done.err[0].startswith("this text is spaced differently: 0% of the places before a full stop or comma, ")
    assert done.err[0].endswith("% in the training text; cut it into words as in the training text")
    file.write_text("\n".join(SEGMENTED), encoding="utf-8")
    assert attent("translate", run, file, "--max-length", 3).err == []
    # two updates teach a model to write one sign for ever
    done = attent("translate", run, SEGMENTED[0])
    assert done.err == ["a translation repeats itself, line 1: --no-repeat-ngram 4 prevents this"]
    assert attent("translate", run, SEGMENTED[0], "--no-repeat-ngram", 2).err == []


def test_translations_are_detokenized(attent, run: Path) -> None:
    pytest.importorskip("sacremoses", reason="detokenizing needs sacremoses")
    options = ("--max-length", 9, "--prefix", "a dog , a")
    assert attent("translate", run, SEGMENTED[0], *options).out[0].startswith("a dog , a")
    assert attent("translate", run, SEGMENTED[0], *options, "--detokenize").out[0].startswith("A dog, a")
    lines = attent("translate", run, SEGMENTED[0], *options, "--detokenize", "--format", "jsonl").out
    assert json.loads(lines[0])["translations"][0]["text"].startswith("A dog, a")
