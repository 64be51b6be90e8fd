import sys
from itertools import product
from pathlib import Path

import pytest
from comparison import trainings
from comparison.parts import ALL_NORMALIZERS, ALL_SCORES, compare

from attent import registry
from attent.errors import ArgumentError, DataError, UnknownNameError

OWN = """
from torch import nn, ones
from attent.attention.base import Normalizer, Score

class Diag(Score):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(ones(width))

    @classmethod
    def for_widths(cls, query_width, key_width, heads):
        return cls(query_width)

    def forward(self, query, key):
        return (query * self.weight) @ key.transpose(-2, -1)

class Bare(Score):
    def __init__(self, width):
        super().__init__()
"""


@pytest.fixture
def own_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the current folder, which holds a score."""
    (tmp_path / "own_part_compared.py").write_text(OWN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_part_compared", raising=False)
    return "own_part_compared"


@pytest.fixture
def pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of pairs, on which tiny models are trained."""
    small = {"encoder_layers": 1, "decoder_layers": 1, "width": 8, "feed_forward": 8, "heads": 2}
    monkeypatch.setattr(trainings, "TRANSFORMER_ON_CAPTIONS", {"kind": "transformer", **small})
    monkeypatch.setattr(trainings, "RNN_ON_CAPTIONS", {"kind": "rnn", "embedding_width": 4, "width": 8})
    words = product(
        ("red", "green", "blue", "white"), ("dog", "cat", "horse", "cow", "bird"), ("runs", "sits", "sleeps")
    )
    lines = [f"a {color} {noun} {verb}\teine {color} {noun} die {verb}" for color, noun, verb in words]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path / "pairs.tsv"


@pytest.mark.slow
def test_scores_are_compared_in_both_models_and_local_ones_in_the_rnn(options, silent) -> None:
    comparison = compare(options(parts=["location", "local-p"]), say=lambda line: None, progress=silent)
    (rows,) = [table.rows for table in comparison.report.tables]
    models = [(row["model"], row["score"]) for row in rows]
    assert models == [("RNN, Luong", "location"), ("RNN, Luong", "local-p"), ("Transformer", "location")]
    assert all(row["dates_values"]["sentences"] == row["combinations_values"]["sentences"] == 9 for row in rows)
    (figure,) = comparison.figures
    assert [[point.x for point in line.points] for line in figure.series] == [["location", "local-p"], ["location"]]


def test_what_cannot_be_compared_leaves_nothing_behind(options, tmp_path: Path) -> None:
    assert {"location", "local-m", "local-p", "additive"} <= set(ALL_SCORES)
    with pytest.raises(ArgumentError, match="local-m and local-p need a recurrent decoder: --models rnn"):
        compare(options(models=["transformer"], parts=["local-p", "local-m"]))
    for text, error in (({"train": str(tmp_path / "no.tsv")}, DataError), ({"train_source": "a"}, ArgumentError)):
        with pytest.raises(error):
            compare(options(text=text))
    assert not options().out.exists()


def test_normalizers_are_compared_by_the_same_experiment(options, silent) -> None:
    assert ALL_NORMALIZERS == ("entmax15", "hard", "identity", "sigmoid", "softmax", "sparsemax")
    chosen = options(models=["transformer"], parts=["sparsemax", "softmax"])
    result = compare(chosen, "normalizers", say=lambda line: None, progress=silent)
    (table,) = result.report.tables
    assert [row["normalizer"] for row in table.rows] == ["softmax", "sparsemax"]
    assert (result.name, result.figures[0].x, table.columns[1].title) == ("normalizers", "normalizer", "normalizer")
    with pytest.raises(UnknownNameError, match="unknown normalizer 'top_k'"):
        compare(options(parts=["top_k"]), "normalizers")
    with pytest.raises(ArgumentError, match="contains the comparison 'normalizers', not 'scores'"):
        compare(options(parts=["dot"]))


@pytest.mark.slow
def test_a_score_of_ones_own_is_compared_and_goes_on_without_further_trust(options, silent, own_part: str) -> None:
    chosen = options(models=["rnn"], parts=[f"{own_part}:Diag", "dot"])
    with pytest.raises(ArgumentError, match="No module named 'own_part_compared'"):
        compare(chosen)
    with registry.current_folder_searched():
        first = compare(chosen, say=lambda line: None, progress=silent)
        repeated = compare(chosen, say=lambda line: None, progress=silent)
        with pytest.raises(ArgumentError, match=r"needs arguments .*, or give its class for_widths"):
            compare(options(parts=[f"{own_part}:Bare"]))
    assert [row["score"] for row in first.report.tables[0].rows] == ["dot", "own_part_compared:Diag"]
    assert first.values()["tables"] == repeated.values()["tables"]
    assert (chosen.out / "rnn" / "own_part_compared.Diag-1").is_dir()


def test_a_run_in_the_place_of_a_planned_one_imports_nothing(options, silent, own_part: str) -> None:
    """A folder of a comparison may come from somebody else; its runs name modules of their own."""
    compare(options(models=["rnn"], parts=["dot"]), say=lambda line: None, progress=silent)
    config = options().out / "rnn" / "dot-1" / "config.json"
    config.write_text(
        config.read_text(encoding="utf-8").replace('"score": "dot"', f'"score": "{own_part}:Diag"'), encoding="utf-8"
    )
    with registry.current_folder_searched(), pytest.raises(ArgumentError, match="was trained with another model"):
        compare(options(models=["rnn"], parts=["dot"]), say=lambda line: None, progress=silent)
    assert own_part not in sys.modules


def test_parts_are_compared_on_ones_own_pairs(options, silent, pairs: Path) -> None:
    chosen = options(parts=["dot", "local-p"], text={"train": str(pairs)})
    result = compare(chosen, say=lambda line: None, progress=silent)
    (table,) = result.report.tables
    assert table.title == "Evaluated on 3 validation pairs"
    models = [(row["model"], row["score"]) for row in table.rows]
    assert models == [("RNN, Luong", "dot"), ("RNN, Luong", "local-p"), ("Transformer", "dot")]
    assert [column.title for column in table.columns[2:4]] == ["BLEU [95 %] (seeds)", "exact match [95 %] (seeds)"]
    assert all(row["bleu_values"]["sentences"] == 3 for row in table.rows)
    pairs.write_text(pairs.read_text(encoding="utf-8") + "\none\tmore", encoding="utf-8")
    with pytest.raises(ArgumentError, match="contains a comparison on other data"):
        compare(chosen)
