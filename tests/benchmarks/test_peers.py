"""The scripts in benchmarks/ that do more than call the package.

Other projects are given what attent itself learns from.
"""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import _corpora as corpora
import numpy as np
import pytest
import torch
from _training import transformer

from attent.search.search import Hypothesis
from attent.text.batches import BatchSize, Bitext
from attent.text.tokenizer import PAD, SPECIALS
from attent.text.tokenizers import learn

ROOT = Path(__file__).parents[2]
PIECES, TOKENS = 40, 48
SMALL = transformer().model_copy(
    update={"encoder_layers": 1, "decoder_layers": 2, "width": 8, "feed_forward": 12, "heads": 2}
)


@pytest.fixture
def peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, and a folder of environments of which there are none."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("_peers")
    monkeypatch.setattr(module, "FOLDER", tmp_path / "peers")
    return module


@pytest.fixture
def data() -> Bitext:
    pairs = corpora.synthetic_pairs(PIECES, number=60, length=5)
    return corpora.bitext(pairs, learn("word", [pair.source for pair in pairs], PIECES))


def environment(name: str, folder: Path) -> None:
    """One that is this."""
    if sys.platform == "win32":
        pytest.skip("an environment is a shell script here")
    python = folder / "peers" / name / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)


def test_what_is_written_is_what_attent_learns_from(peers: ModuleType, data: Bitext, tmp_path: Path) -> None:
    peers.write(tmp_path, data, SMALL, PIECES, TOKENS, 3)
    sources, targets = (
        [[int(piece[1:]) for piece in line.split()] for line in (tmp_path / f"{side}.txt").read_text().splitlines()]
        for side in ("source", "target")
    )
    rows = json.loads((tmp_path / "batches.json").read_text())
    assert len(rows) == 3
    assert len(sources) == len(targets) == sum(rows)
    first = 0
    for number, batch in zip(rows, data.stream(BatchSize(tokens=TOKENS), 1), strict=False):
        assert len(batch.source) == number
        for row, source in enumerate(sources[first : first + number]):
            assert source == [token for token in batch.source[row].tolist() if token != PAD]
            # without EOS
            assert targets[first + row] == batch.target_out[row, : batch.target_lengths[row] - 1].tolist()
        first += number
    words = (tmp_path / "vocabulary.txt").read_text().splitlines()
    assert len(words) == PIECES
    assert words[SPECIALS:] == [f"p{token}" for token in range(SPECIALS, PIECES)]
    assert json.loads((tmp_path / "model.json").read_text())["feed_forward"] == 12


def test_lines_are_written_by_length_with_the_steps_of_our_own_translations(peers: ModuleType, tmp_path: Path) -> None:
    translations = [Hypothesis(tuple(range(4, 4 + length)), 0.0, 1.0) for length in (3, 1)]
    peers.write_lines(tmp_path, [[7, 8, 9], [5]], {"greedy": (1, translations, (8, 16))}, SMALL, PIECES)
    assert (tmp_path / "lines.txt").read_text() == "p5\np7 p8 p9\n"
    assert json.loads((tmp_path / "searches.json").read_text()) == {
        "greedy": {"beam": 1, "batches": [8, 16], "steps": [2, 4]}
    }


def test_a_peer_without_an_environment_is_left_out_and_one_that_fails_not_asked_again(
    peers: ModuleType, tmp_path: Path
) -> None:
    environment("here", tmp_path)
    installed = peers.Peers({"Here": ("here", "no_such_script.py"), "There": ("there", "b.py")})
    assert list(installed.available) == ["Here"]
    assert installed.run("Here") is None
    assert installed.run("Here") is None
    left_out, failed = installed.notes
    assert left_out == "There is left out: scripts/peers there makes its environment."
    assert failed.startswith("Here failed: ") and "no_such_script.py" in failed


@pytest.mark.slow
def test_marian_learns_from_what_was_written_and_translates_it(peers: ModuleType, data: Bitext, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    environment("transformers", tmp_path)
    peers.write(tmp_path, data, SMALL, PIECES, TOKENS, 2)
    installed = peers.Peers({"trained": peers.TRAINED["transformer"]["Marian"], **peers.GENERATED})
    result = installed.run("trained", tmp_path, "--updates", 2, "--warmup", 1, "--threads", 1)
    assert installed.notes == []
    assert result["package"] == "transformers"
    assert result["tokens_per_second"] > 0
    translations = [Hypothesis((4, 5), 0.0, 1.0)] * 4
    lines = [data.source.tokens[: 2 + row].tolist() for row in range(4)]
    peers.write_lines(
        tmp_path, lines, {"greedy": (1, translations, (2, 4)), "beam 2": (2, translations, (2,))}, SMALL, PIECES
    )
    rates = installed.run("Marian, generate", tmp_path, "--threads", 1)["lines_per_second"]
    assert {name: sorted(of) for name, of in rates.items()} == {"greedy": ["2", "4"], "beam 2": ["2"]}
    assert all(rate > 0 for of in rates.values() for rate in of.values())
    assert installed.versions["trained"].startswith("trained: transformers ")


def test_the_clock_counts_between_the_starts_of_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "peers"))
    measured = importlib.import_module("_measured")
    now = iter(np.arange(0.0, 100.0, 10.0))
    monkeypatch.setattr(measured.time, "perf_counter", lambda: next(now))
    clock = measured.Clock(2, 3)
    for tokens in (1000, 1000, 50, 60, 70):
        clock.begin(tokens)
    with pytest.raises(measured.Enough):
        clock.begin(1000)
    # read when the third and the sixth began
    assert clock.rate == pytest.approx(180 / 10)


@pytest.mark.slow
def test_scaling_writes_a_page_and_its_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    scaling = importlib.import_module("scaling")
    monkeypatch.setattr(scaling, "TOKENS", 64)
    monkeypatch.setattr(scaling, "PIECES", PIECES)
    sizes = ["--tokens", "64", "128", "--pieces", "20", "30", "--lengths", "3", "9", "--threads", "1"]
    monkeypatch.setattr("sys.argv", ["scaling.py", "--out", str(tmp_path), *sizes, "--rounds", "1", "--updates", "1"])
    scaling.main()
    lines = (tmp_path / "scaling.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# How training scales: a Transformer of preset tiny"
    rows = [line.strip("|").split("|") for line in lines if line.startswith("| ") and line[2].isdigit()]
    assert [row[0].strip() for row in rows] == ["64", "128", "20", "30", "3", "9"]
    assert all(float(cell.replace(",", "")) > 0 for row in rows for cell in row[1:])
    drawing = (tmp_path / "figures" / "scaling.svg").read_text(encoding="utf-8")
    assert all(title in drawing for title in scaling.TITLES.values())


def test_precision_of_explanations_at_the_size_of_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    explanations = importlib.import_module("explanations")
    numbers = torch.tensor([0.1, -0.9, 0.5, 0.4])
    assert explanations.precision(numbers, frozenset({2, 3})) == 1.0
    assert explanations.precision(numbers, frozenset({1, 2})) == 0.5
