from pathlib import Path

import pytest

from attent.errors import ArgumentError, UnknownNameError
from attent.text.tokenizers import KINDS, LEARNT, learn, suitable_size

LINES = ["the dog walks", "the cat walks", "a dog sleeps"] * 7


@pytest.mark.parametrize("kind", LEARNT)
def test_every_kind_is_learnt_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    tokenizer = learn(kind, LINES)
    assert isinstance(tokenizer, KINDS[kind])
    tokenizer.save(tmp_path / "t.json")
    loaded = KINDS[kind].load(tmp_path / "t.json")
    for line in LINES:
        assert loaded.encode(line) == tokenizer.encode(line)
        assert loaded.decode(tokenizer.encode(line)) == line


@pytest.mark.parametrize(("kind", "size"), [("word", 7), ("bpe", 283), ("unigram", 275)])
def test_a_size_is_kept_to(kind: str, size: int) -> None:
    assert learn(kind, LINES, size).size == size
    with pytest.raises(ArgumentError, match="every character"):
        learn("char", LINES, 30)
    with pytest.raises(UnknownNameError, match="did you mean 'unigram'"):
        learn("unigrams", LINES)


@pytest.mark.parametrize(("count", "pieces"), [(100, 300), (10_000, 3000), (300_000, 16_000)])
def test_the_size_grows_with_the_text_up_to_a_limit(count: int, pieces: int) -> None:
    assert suitable_size("ab" for _ in range(count)) == 4 + 256 + 2 + pieces
