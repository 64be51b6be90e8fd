from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest
import torch

from attent.errors import DataError, MissingExtraError
from attent.text.settings import SkipGramSettings
from attent.text.skip_gram import train_vectors

SMALL = SkipGramSettings(width=13, window=3, epochs=3, minimum_count=2)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A text in which cats and dogs have the same neighbors, and trains have others."""
    lines = [
        f"the {animal} {verb} in the garden" for animal in ("cat", "dog", "Hen") for verb in ("sleeps", "eats", "plays")
    ] + [f"a train {verb} from Rome at {hour}" for verb in ("leaves", "departs") for hour in ("noon", "dawn", "night")]
    path = tmp_path / "text.txt"
    path.write_text("\n".join(lines * 40), encoding="utf-8")
    return path


def test_words_with_the_same_neighbors_are_near(text: Path) -> None:
    pytest.importorskip("gensim", reason="gensim is not installed")
    vectors = train_vectors(text, SMALL.model_copy(update={"epochs": 20}))
    assert {word for word, _ in vectors.nearest("cat", 2)} == {"dog", "hen"}
    assert vectors.nearest("leaves", 1)[0][0] == "departs"


def test_equal_settings_give_equal_vectors(text: Path, tmp_path: Path) -> None:
    pytest.importorskip("gensim", reason="gensim is not installed")
    (tmp_path / "text.gz").write_bytes(gzip.compress(text.read_bytes()))
    first, second = train_vectors(text, SMALL), train_vectors(tmp_path / "text.gz", SMALL)
    assert (first.words, first.width) == (second.words, 13)
    assert torch.equal(first.vectors, second.vectors)
    assert not torch.equal(first.vectors, train_vectors(text, SMALL.model_copy(update={"seed": 1})).vectors)


def test_words_beyond_gensims_limit_count(tmp_path: Path) -> None:
    pytest.importorskip("gensim", reason="gensim is not installed")
    # gensim would ignore the end of this line
    (tmp_path / "text").write_text("a b " * 6000 + "c d " * 3, encoding="utf-8")
    lines: list[str] = []
    assert {"c", "d"} <= set(train_vectors(tmp_path / "text", SMALL, lines.append).words)
    model = train_vectors(tmp_path / "text", SMALL.model_copy(update={"epochs": 40}))
    assert model["c"].norm() > 0.1
    assert lines[0] == "pass 1 of 4: 1 lines"


@pytest.mark.parametrize("content", ["", "once\n", "one two three\n", "only only\nonly\n"])
def test_a_text_without_words_to_compare_is_an_error(tmp_path: Path, content: str) -> None:
    pytest.importorskip("gensim", reason="gensim is not installed")
    (tmp_path / "text").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"need two words that occur at least 2 times, got [01]: set a lower") as caught:
        train_vectors(tmp_path / "text", SMALL)
    assert "\n" not in str(caught.value)


def test_without_gensim_the_message_names_the_extra(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(MissingExtraError, match=r"needs gensim: in a clone of attent, pip install '\.\[vectors\]'"):
        train_vectors(text, SMALL)
