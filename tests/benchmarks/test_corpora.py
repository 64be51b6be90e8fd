import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from _corpora import bitext, load_pairs, synthetic_pairs
from comparison.length import MULTI30K

from attent.errors import ArgumentError
from attent.text.text import Pair


def test_sentences_are_made_up_as_long_and_as_uneven_as_captions() -> None:
    pairs = synthetic_pairs(500, number=4000, length=14.0, spread=0.3)
    assert pairs == synthetic_pairs(500, number=4000, length=14.0, spread=0.3)
    lengths = np.array([[len(pair.source.split()), len(pair.target.split())] for pair in pairs])
    assert lengths.mean(0) == pytest.approx([14, 14], rel=0.03)
    assert np.log(lengths[:, 0]).std() == pytest.approx(0.3, rel=0.1)
    assert np.corrcoef(lengths.T)[0, 1] > 0.8
    counts = Counter(word for pair in pairs for word in pair.source.split())
    # Zipf: the first word comes twice as often as the second and ten times as often as the tenth
    assert counts["w0"] / counts["w1"] == pytest.approx(2, rel=0.1)
    assert counts["w0"] / counts["w9"] == pytest.approx(10, rel=0.15)


def test_without_a_path_text_is_made_up_and_its_vocabulary_fits() -> None:
    pairs, tokenizer, name = load_pairs(None, 300)
    assert name == "made-up sentences" and tokenizer.size <= 300
    assert bitext(pairs[:40], tokenizer).source.lengths.tolist() == [len(pair.source.split()) for pair in pairs[:40]]
    with pytest.raises(ArgumentError, match="more than its 4 special ids"):
        load_pairs(None, 4)


def test_multi30k_is_read_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "tok").mkdir()
    for name, text in zip(
        MULTI30K["train"], ("a dog runs\na cat sleeps\n", "ein hund rennt\neine katze schläft\n"), strict=True
    ):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    pairs, tokenizer, name = load_pairs(tmp_path, 300)
    assert list(pairs) == [Pair("a dog runs", "ein hund rennt"), Pair("a cat sleeps", "eine katze schläft")]
    assert tokenizer.decode(tokenizer.encode("ein hund")) == "ein hund"
    assert "Multi30k" in name
