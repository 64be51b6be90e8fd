from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from attent.errors import ArgumentError
from attent.search.search import Hypothesis
from attent.tasks.translation import ray
from attent.tasks.translation.engine import Engine
from attent.text.tokenizer import CharTokenizer

ROOT = Path(__file__).parents[2]


class Backwards(Engine):
    """An engine that writes each text from behind."""

    def __init__(self) -> None:
        super().__init__(CharTokenizer("abcd"), CharTokenizer("abcd"))

    def search_encoded(self, sources: Sequence[Sequence[int]], *_: object, **__: object) -> list[list[Hypothesis]]:
        return [[Hypothesis(tuple(tokens)[::-1], 0.0, 1.0)] for tokens in sources]


@pytest.fixture
def translator(monkeypatch: pytest.MonkeyPatch) -> ray.ColumnTranslator:
    monkeypatch.setattr(ray, "load", lambda *arguments, **named: Backwards())
    return ray.ColumnTranslator("run", column="en", output="de")


def test_a_column_of_translations_is_added(translator: ray.ColumnTranslator) -> None:
    batch = {"number": np.array([3, 5]), "en": np.array(["ab", "cd"], dtype=object)}
    translated = translator(batch)
    assert list(translated) == ["number", "en", "de"]
    assert translated["de"] == ["ba", "dc"]
    assert "de" not in batch
    # characters become variants that the run knows
    assert translator({"en": ["\N{FULLWIDTH LATIN SMALL LETTER A}b"]})["de"] == ["ba"]
    with pytest.raises(ArgumentError, match=r"^the data set has no column 'en', only text, number$"):
        translator({"text": np.array(["ab"]), "number": np.array([3])})
    for value, text in ((3, "int '3'"), (b"ab", "bytes \"b'ab'\"")):
        with pytest.raises(ArgumentError, match=f"^column 'en' must hold texts, got {text}$"):
            translator({"en": ["ab", value]})


@pytest.mark.parametrize("missing", [None, float("nan"), np.float32("nan"), np.datetime64("NaT", "s")])
def test_a_missing_text_has_no_translation(translator: ray.ColumnTranslator, missing: object) -> None:
    assert translator({"en": ["ab", missing, "cd"]})["de"] == ["ba", None, "dc"]
    assert translator({"en": [missing]})["de"] == [None]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_workers_one_of_which_is_killed_translate_as_one_process(tmp_path: Path) -> None:
    lines = [f"the dog {number}" for number in range(23)]
    (tmp_path / "texts").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text("".join(f"{line}\t{line}\n" for line in lines), encoding="utf-8")
    sizes = [word for size in ("width=16", "feed_forward=16", "heads=2") for word in ("--set", f"model.{size}")]
    files = ["--train", str(tmp_path / "pairs.tsv"), "--out", str(tmp_path / "run")]
    train = ["-m", "attent", "train", *files, "--updates", "1", *sizes]
    subprocess.run([sys.executable, *train], check=True, capture_output=True)
    script = [str(ROOT / "benchmarks" / "ray_translate.py"), str(tmp_path / "run"), str(tmp_path / "texts")]
    # on a busy machine Ray and its workers take longer to start than it waits for by itself
    patient = os.environ | {"RAY_raylet_start_wait_time_s": "300", "RAY_worker_register_timeout_seconds": "300"}
    words = [sys.executable, *script, "--lines", "400", "--batch-rows", "16"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=patient)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Complete and in order: yes; translations unlike those of one process: 0." in done.stdout
