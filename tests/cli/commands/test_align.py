from __future__ import annotations

import gzip
import io
import shutil
import sys
from pathlib import Path
from random import Random

import pytest
import torch

from attent.alignment import head_selection
from attent.alignment.aligner import align, tokenize_pair
from attent.alignment.forced_decoding import AttentionSelector
from attent.alignment.pharaoh import parse, pharaoh
from attent.alignment.symmetrization import symmetrize
from attent.runs.config import read_config
from attent.tasks.translation.translator import Translator, load

PAIRS = [
    ("fr | mardi 3 mars 2026", "2026 -03 -03"),
    ("", ""),
    ("en | 3/3/26", "no date"),
    ("fr | 1 mars 1999", ""),
    ("en | March 1, 1999", "1999-03-01"),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Pairs, parted by tabs."""
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")
    return path


@pytest.fixture
def two_files(tmp_path: Path) -> tuple[Path, Path]:
    """The same, the sources gzipped."""
    sources, targets = ("".join(f"{pair[side]}\n" for pair in PAIRS) for side in (0, 1))
    (tmp_path / "source.txt.gz").write_bytes(gzip.compress(sources.encode()))
    (tmp_path / "target.txt").write_text(targets, encoding="utf-8")
    return tmp_path / "source.txt.gz", tmp_path / "target.txt"


def expected(run: Path, selector: AttentionSelector, **options: object) -> list[str]:
    translator = load(run)
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    links = align(translator.model, [tokenize_pair(*pair, tokenizers) for pair in PAIRS], selector, **options)  # pyright: ignore[reportArgumentType]
    return [pharaoh(link) for link in links]


def test_one_pair_in_one_line_out(
    attent, run_folder: Path, file: Path, two_files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = expected(run_folder, AttentionSelector())
    assert [len(line.split()) for line in lines] == [3, 0, 2, 0, 1]
    assert attent("align", run_folder, file) == (0, lines, [])
    for arguments in ((), ("-",)):
        monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": io.BytesIO(file.read_bytes())})())
        assert attent("align", run_folder, *arguments) == (0, lines, [])
    source, target = two_files
    assert attent("align", run_folder, "--source", source, "--target", target) == (0, lines, [])
    single = file.with_name("single.tsv")
    for pair, line in zip(PAIRS, lines, strict=True):
        single.write_text("\t".join(pair) + "\n", encoding="utf-8")
        assert attent("align", run_folder, single).out == [line]
    empty = tmp_path / "empty.tsv"
    empty.touch()
    assert attent("align", run_folder, empty) == (0, [], [f"{empty} is empty: nothing to align"])
    two = attent("align", run_folder, "--source", empty, "--target", empty)
    assert two == (0, [], [f"{empty} and {empty} are empty: nothing to align"])


def test_any_layer_head_row_and_threshold(attent, run_folder: Path, file: Path) -> None:
    chosen = ("--layer", 0, "--head", 1, "--about", "read")
    assert attent("align", run_folder, file, *chosen).out == expected(run_folder, AttentionSelector(0, 1, "read"))
    assert attent("align", run_folder, file, "--head", "mean").out == expected(run_folder, AttentionSelector())
    above = attent("align", run_folder, file, "--threshold", 0.1).out
    assert above == expected(run_folder, AttentionSelector(), threshold=0.1)
    assert sum(map(len, above)) > sum(map(len, expected(run_folder, AttentionSelector())))
    done = attent("align", run_folder, file, "--tokens")
    assert [len(line.split()) for line in done.out] == [12, 0, 7, 0, 10]


@pytest.fixture(scope="session")
def reverse_folder(settings_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run for the other direction: from ISO dates to French ones."""
    from attent.tasks.overrides import corpus_settings
    from attent.tasks.recipe import follow
    from attent.tasks.settings import parse

    folder = tmp_path_factory.mktemp("reverse")
    text = "\n".join(f"2026-03-{day:02}\tfr | {day} mars 2026" for day in range(1, 29))
    (folder / "pairs.tsv").write_text(f"{text}\n", encoding="utf-8")
    tables = settings_file.read_text(encoding="utf-8")
    settings = parse(
        f'[text]\ntrain = "{folder}/pairs.tsv"\ntokenizer = "char"\n{tables[tables.index("[model]") :]}', "reverse.toml"
    )
    follow(corpus_settings({"train": str(folder / "pairs.tsv")}, settings), folder / "run")
    return folder / "run"


def test_both_directions(attent, run_folder: Path, reverse_folder: Path, tmp_path: Path, file: Path) -> None:
    swapped = tmp_path / "turned.tsv"
    swapped.write_text("".join(f"{target}\t{source}\n" for source, target in PAIRS), encoding="utf-8")
    forward, backward = (
        [parse(line).sure for line in attent("align", run, pairs).out]
        for run, pairs in ((run_folder, file), (reverse_folder, swapped))
    )
    flipped = [{(source, target) for target, source in links} for links in backward]
    for method, options in (("grow-diag", ()), ("intersection", ("--symmetrization", "intersection"))):
        joined = [pharaoh(symmetrize(first, second, method)) for first, second in zip(forward, flipped, strict=True)]
        assert attent("align", run_folder, file, "--reverse", reverse_folder, *options).out == joined


def test_neither_chunks_nor_threads_change_a_line(
    attent, run_folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(4 * file.read_text(encoding="utf-8"), encoding="utf-8")
    whole = attent("align", run_folder, file).out
    assert len(whole) == 20
    monkeypatch.setattr("attent.tasks.translation.pair_linker.LINES", 3)
    monkeypatch.setattr("attent.cli.commands.align.INTERVAL", 0)
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            done = attent("align", run_folder, file)
            assert (done.code, done.out) == (0, whole)
            assert done.err[0].startswith("3 pairs aligned, ")
            assert done.err[-1].startswith("20 pairs aligned, ")
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(1)


def test_lines_before_a_wrong_one_are_aligned(
    attent, run_folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = attent("align", run_folder, file).out
    file.write_text(file.read_text(encoding="utf-8") + "no tab\n", encoding="utf-8")
    monkeypatch.setattr("attent.tasks.translation.pair_linker.LINES", 2)
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            done = attent("align", run_folder, file)
            assert (done.code, done.out) == (2, whole)
            assert done.err == [f"attent: {file}, line 6: must be source, tab, target, got 0 tabs"]
    finally:
        torch.set_num_threads(1)


def test_a_pair_that_is_too_long_is_named_and_the_others_aligned(
    attent, run_folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = attent("align", run_folder, file).out
    monkeypatch.setattr(Translator, "longest_source", 16)
    done = attent("align", run_folder, file)
    # of the fourth pair only the source is read, whose target is empty
    says = "tokens, more than the 16 that this model can read"
    assert (done.code, done.err) == (2, [f"line 1: not aligned: 22 {says}", f"line 5: not aligned: 18 {says}"])
    assert done.out == ["", "", whole[2], "", ""]
    # BOS counts
    file.write_text("a\t0123456789abcde\na\t0123456789abcdef\n", encoding="utf-8")
    assert attent("align", run_folder, file).err == [f"line 2: not aligned: 17 {says}"]


def test_without_gold_links_pairs_choose_what_is_kept(
    attent, run_folder: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the run has learnt next to nothing
    monkeypatch.setattr(head_selection, "DEPENDENT", 1e-6)
    run = tmp_path / "run"
    shutil.copytree(run_folder, run)
    # words as long as each other, among which weights that are almost equal choose
    draw = Random(4)
    sides = (" ".join(draw.choices("adefilmnrs0123456789", k=draw.randint(2, 9))) for _ in range(40))
    file.write_text("".join(f"{source}\t{next(sides)}\n" for source in sides), encoding="utf-8")
    done = attent("align", run, file, "--best", "--tokens")
    assert done.code == 0
    assert done.err[0] == "looking at every layer and head on 20 pairs without gold links"
    assert (done.out[0], len(done.out)) == ("chosen on 20 pairs without gold links:", 2 + 10)
    chosen = read_config(run).alignment
    assert chosen is not None
    assert done.out[2].split()[:2] == [str(chosen.layer), "mean" if chosen.head is None else str(chosen.head)]
    assert done.err[1].startswith(f"{run} now aligns by layer {chosen.layer}")


def test_pairs_that_tell_no_head_from_another_choose_nothing(
    attent, run_folder: Path, file: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(run_folder, run)
    file.write_text("a\tb\n", encoding="utf-8")
    done = attent("align", run, file, "--best")
    says = "attent: these pairs do not tell the heads apart: give more pairs, or --gold"
    assert (done.code, done.out, done.err[-1]) == (2, [], says)
    assert read_config(run).alignment is None
    file.write_text("\ta\n", encoding="utf-8")
    done = attent("align", run_folder, file, "--best-head")
    assert (done.code, done.err[-1]) == (2, "attent: there are no pairs to choose by: every pair has an empty side")
