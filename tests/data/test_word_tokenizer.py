import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attent.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from attent.data.word_tokenizer import WordTokenizer
from attent.errors import ArgumentError, DataError

STRANGE = ["👩‍🚀 fliegt 👍🏽!", "e\u0301 é", "a\tb", "two  spaces", " before", "after ", "", " ", "हिन्दी में", "a\u00a0b\u3000c", "l\nf"]


@given(st.lists(st.text(), max_size=5))
def test_decoding_undoes_encoding_where_every_word_is_known(lines: list[str]) -> None:
    tokenizer = WordTokenizer.learn([*lines, *lines])
    for line in lines:
        ids = tokenizer.encode(line)
        assert tokenizer.decode(ids) == line
        assert all(EOS < token < tokenizer.size for token in ids)


@pytest.mark.parametrize("line", STRANGE)
def test_strange_text_comes_back(line: str) -> None:
    tokenizer = WordTokenizer.learn([line, line])
    assert tokenizer.decode(tokenizer.encode(line)) == line


def test_real_text_comes_back(data_folder: Path) -> None:
    for language in ("en", "de", "fr", "cs"):
        lines = gzip.decompress((data_folder / "multi30k" / f"val.{language}.gz").read_bytes()).decode().split("\n")
        tokenizer = WordTokenizer.learn(lines * 2)
        assert all(tokenizer.decode(tokenizer.encode(line)) == line for line in lines)


@given(st.text())
def test_there_is_one_piece_per_id(text: str) -> None:
    tokenizer = WordTokenizer.learn(["abc abc"])
    assert len(tokenizer.pieces(text)) == len(tokenizer.encode(text))
    assert "".join(tokenizer.pieces(text)).removeprefix(" ") == text


def test_by_hand() -> None:
    tokenizer = WordTokenizer.learn(["A dog, a cat.", "a dog!", "dog."])
    assert tokenizer.words == (" dog", " a", ".")
    assert tokenizer.size == 7
    assert tokenizer.encode("dog. a bird") == [4, 6, 5, UNK]
    assert tokenizer.decode([BOS, 4, PAD, UNK, 6, EOS, 5, 99]) == "dog."


def test_words_of_many_scripts_stay_whole() -> None:
    assert WordTokenizer([]).pieces("Don't stop: हिन्दी, e\u0301te\u0301 (x)") == [
        " Don", "'", "t", " stop", ":", " हिन्दी", ",", " e\u0301te\u0301", " (", "x", ")",
    ]  # fmt: skip


def test_the_size_is_kept_to() -> None:
    lines = ["a b c d e", "a b c", "a"]
    assert WordTokenizer.learn(lines, 6).words == (" a", " b")
    assert WordTokenizer.learn(lines, 99).size == 9
    with pytest.raises(ArgumentError, match="more than its 4 special ids, got 4"):
        WordTokenizer.learn(lines, 4)


def test_a_saved_tokenizer_loads_the_same(tmp_path: Path) -> None:
    tokenizer = WordTokenizer.learn(STRANGE * 2)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded: Tokenizer = WordTokenizer.load(tmp_path / "tokenizer.json")
    assert [loaded.encode(line) for line in STRANGE] == [tokenizer.encode(line) for line in STRANGE]


@pytest.mark.parametrize("token", [-1, 6])
def test_an_id_out_of_range_is_an_error(token: int) -> None:
    with pytest.raises(ArgumentError, match=f"from 0 to 5, got {token}"):
        WordTokenizer([" a", " b"]).decode([4, token])


@pytest.mark.parametrize(
    ("words", "message"), [("ab", "must be a list"), (["a", ""], "must be a text"), ([5], "got 5"), (["a", "a"], "'a' twice")]
)
def test_a_damaged_file_is_named(tmp_path: Path, words: object, message: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"format": "attent word tokenizer", "version": 1, "words": words}), encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        WordTokenizer.load(path)
    assert str(path) in str(caught.value)


def test_an_id_stands_for_a_piece_and_for_a_word() -> None:
    tokenizer = WordTokenizer([" the", "\t", "("])
    assert [tokenizer.piece(token) for token in range(7)] == ["", "", "", "", " the", "\t", "("]
    assert [tokenizer.word(token) for token in range(7)] == [None, None, None, None, "the", None, "("]


def test_a_long_text_is_cut_as_a_short_one_is_in_little_memory() -> None:
    tokenizer, text = WordTokenizer.learn(["one two", "one two"]), "one two " * 50_000
    assert tokenizer.encode(text.strip()) == tokenizer.encode("one two") * 50_000
    tracemalloc.start()
    tokenizer.encode(text)
    WordTokenizer.learn([text])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 * len(text)
