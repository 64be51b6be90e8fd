import io
import json
from pathlib import Path

import pytest

from attent.config.recipe import follow
from attent.config.settings import parse
from attent.decoding.translator import load
from attent.errors import RunError
from attent.training.progress import Progress

TINY = parse(
    """
    [dates]
    locales = ["en", "de"]
    training_pairs = 53
    validation_pairs = 5
    held_out_dates = 31
    held_out_pairs = 7
    held_out_combinations = 2
    [model]
    encoder_layers = 1
    decoder_layers = 1
    width = 16
    feed_forward = 17
    heads = 2
    [training]
    updates = 3
    batch_pairs = 8
    precision = "float32"
    """,
    "tiny.toml",
)


def test_a_recipe_ends_in_a_run_folder_that_suffices(tmp_path: Path) -> None:
    results = follow(TINY, tmp_path / "run", progress=Progress(io.StringIO()))
    assert list(results) == ["held-out dates", "held-out combinations"]
    assert all(set(scores) == {"pairs", "exact_match", "year_alignment"} for scores in results.values())
    assert all(scores["pairs"] == 7 and 0 <= scores["year_alignment"] <= 100 for scores in results.values())
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["results"] == results
    assert config["corpus"]["dates"]["locales"] == ["en", "de"]
    assert config["training"]["outcome"]["updates"] == 3
    assert len(load(tmp_path / "run").translate(["en | March 3, 2026", ""])) == 2


def test_the_same_seed_gives_the_same_results(tmp_path: Path) -> None:
    for name in ("one", "two"):
        follow(TINY, tmp_path / name, progress=Progress(io.StringIO()))
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two


def test_a_run_folder_in_the_way_is_noticed_before_training(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    stream = io.StringIO()
    with pytest.raises(RunError, match="is there already"):
        follow(TINY, tmp_path / "run", progress=Progress(stream))
    assert stream.getvalue() == ""
