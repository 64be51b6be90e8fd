from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from attent.runs.config import AlignmentHead, read_config

PAIRS = [
    ("fr | 3 mars 2026", "2026 03 03"),
    ("a", ""),
    ("en | 3/3/26", "no date"),
    ("fr | 1 mars 1999", "x y z"),
    ("en | a b", "c"),
    ("a b c", "d e f"),
]
SCORES = re.compile(r"AER (\S+)  precision (\S+)  recall (\S+)  \((.*)\)")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Pairs, parted by tabs."""
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")
    return path


def gold_of(attent, run: Path, file: Path, *options: object) -> Path:
    """The links that the run itself makes, as a file of gold links."""
    path = file.with_name("gold.txt")
    path.write_text("".join(f"{line}\n" for line in attent("align", run, file, *options).out), encoding="utf-8")
    return path


def test_worked_by_hand(attent, run_folder: Path, file: Path) -> None:
    gold = gold_of(attent, run_folder, file)
    done = attent("align", run_folder, file, "--gold", gold)
    description = "last layer, mean over heads, rows about the token produced"
    assert done == (0, [f"AER 0.000  precision 1.000  recall 1.000  (6 pairs; {description})"], [])
    lines = gold.read_text(encoding="utf-8").split("\n")
    # of twelve links one in three is left, as possible, and one sure link is added that the run does not make
    words = [line.split() for line in lines[:6]]
    assert [len(word) for word in words] == [3, 0, 2, 3, 1, 3]
    missed = next(f"{source}-2" for source in range(4) if f"{source}-2" not in words[0])
    left = [" ".join(word[:1]).replace("-", "?") for word in words]
    gold.write_text("\n".join([f"{left[0]} {missed}", *left[1:]]) + "\n", encoding="utf-8")
    printed = attent("align", run_folder, file, "--gold", gold).out[0]
    # A has 12 links, S one, A ∩ S none, and A ∩ P five
    assert SCORES.match(printed).groups()[:3] == (f"{1 - 5 / 13:.3f}", f"{5 / 12:.3f}", "0.000")  # pyright: ignore[reportOptionalMemberAccess]


def test_words_may_be_counted_from_one(attent, run_folder: Path, file: Path) -> None:
    gold = gold_of(attent, run_folder, file)
    text = re.sub(r"\d+", lambda number: str(int(number[0]) + 1), gold.read_text(encoding="utf-8"))
    gold.write_text(text, encoding="utf-8")
    assert attent("align", run_folder, file, "--gold", gold, "--one-based").out[0].startswith("AER 0.000")
    assert attent("align", run_folder, file, "--gold", gold).code == 2


def test_what_is_best_is_chosen_on_half_of_the_pairs(attent, run_folder: Path, file: Path) -> None:
    expected = ("--layer", 0, "--head", 1, "--about", "read")
    file.write_text(3 * file.read_text(encoding="utf-8"), encoding="utf-8")
    gold = gold_of(attent, run_folder, file, *expected)
    done = attent("align", run_folder, file, "--gold", gold, "--best-head")
    assert (done.code, done.err) == (0, ["looking at every layer and head on 9 of 18 pairs, drawn at random"])
    assert done.out[0] == "chosen on 9 of 18 pairs, drawn at random:"
    # others may make the same links, and then come first or second
    best = [line.split() for line in done.out[2:-1] if line.split()[-3:] == ["0.000", "1.000", "1.000"]]
    assert ["0", "1", *["the", "token", "read", "in"], "0.000", "1.000", "1.000"] in best
    assert (done.out[2].split(), len(done.out)) == (best[0], 2 + 10 + 1)
    assert " recall 1.000  (9 pairs; layer " in done.out[-1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0-0\n\n", "must have a line for each pair: there is no line 3"),
        ("\n" * 7, "must have a line for each pair: there is no pair 7"),
        ("0-0\n\n0-2\n\n\n\n", "line 3: 0-2, counted from 0, links words of 3 source and 2 target words"),
        ("0-0\n0:0\n\n\n\n\n", "line 2: a link must be written 0-2"),
    ],
)
def test_a_file_of_links_that_does_not_fit(refused, run_folder: Path, file: Path, text: str, says: str) -> None:
    gold = file.with_name("gold.txt")
    gold.write_text(text, encoding="utf-8")
    assert says in refused("align", run_folder, file, "--gold", gold)
    file.write_text("a b\tc\n", encoding="utf-8")
    gold.write_text("0-0\n", encoding="utf-8")
    assert "--best-head needs at least two pairs" in refused("align", run_folder, file, "--gold", gold, "--best-head")


@pytest.mark.slow
def test_the_best_is_kept_with_the_run(attent, run_folder: Path, file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(run_folder, run)
    text = "fr | mardi 3 mars 2026"
    options = ("translate", run, text, "--prefix", "2026-", "--max-length", 9, "--alignments", "--no-repeat-ngram", 2)
    before = attent(*options).out[0]
    gold = gold_of(attent, run_folder, file, "--layer", 0, "--head", 1, "--about", "read")
    done = attent("align", run, file, "--gold", gold, "--best")
    assert (done.code, done.out[0]) == (0, "chosen on 3 of 6 pairs, drawn at random:")
    chosen = read_config(run).alignment
    assert chosen is not None
    layer, head, *_ = done.out[2].split()
    assert (str(chosen.layer), "mean" if chosen.head is None else str(chosen.head)) == (layer, head)
    assert f"{run} now aligns by layer {layer}" in done.err[-1]
    description = f"layer {layer}, {'mean over heads' if head == 'mean' else f'head {head}'}"
    assert description in done.out[-1]
    assert attent("align", run_folder, file, "--gold", gold, "--best-head").out == done.out
    pair = tmp_path / "pair.tsv"
    translation, alignment = attent(*options).out[0].split(" ||| ")
    pair.write_text(f"{text}\t{translation}\n", encoding="utf-8")
    own = attent("align", run, pair).out
    assert own == [alignment]
    # the choice is another attention than the default, which options still select
    assert chosen != AlignmentHead()
    explicit = ("--layer", layer, "--head", head, "--about", chosen.about)
    assert attent("align", run, pair, *explicit).out == own
    assert attent("align", run, pair, "--about", "produced").out == [before.split(" ||| ")[1]]
