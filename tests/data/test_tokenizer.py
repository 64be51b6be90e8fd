import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attent.data.tokenizer import BOS, EOS, PAD, UNK, CharTokenizer, Tokenizer
from attent.errors import ArgumentError, DataError

LINES = ["fr | mardi 3 mars", "३१ जाने", "火曜日 \u202f\u200f\n", "𞥐 e\u0301 é"]


@given(st.lists(st.text()))
def test_decoding_undoes_encoding_where_every_character_is_known(lines: list[str]) -> None:
    tokenizer = CharTokenizer.learn(lines)
    for line in lines:
        ids = tokenizer.encode(line)
        assert tokenizer.decode(ids) == line
        assert all(EOS < token < tokenizer.size for token in ids)


@given(st.text())
def test_there_is_one_piece_per_id(text: str) -> None:
    tokenizer = CharTokenizer.learn(["abc"])
    assert len(tokenizer.pieces(text)) == len(tokenizer.encode(text))
    assert "".join(tokenizer.pieces(text)) == text


def test_a_saved_tokenizer_loads_the_same(tmp_path: Path) -> None:
    tokenizer = CharTokenizer.learn(LINES)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded: Tokenizer = CharTokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.size == tokenizer.size
    assert [loaded.encode(line) for line in LINES] == [tokenizer.encode(line) for line in LINES]


def test_the_order_of_lines_does_not_matter() -> None:
    assert CharTokenizer.learn(LINES).characters == CharTokenizer.learn(reversed(LINES)).characters


def test_text_is_not_normalised() -> None:
    tokenizer = CharTokenizer.learn(["é"])
    assert tokenizer.encode("e\u0301") == [UNK, UNK]
    assert tokenizer.encode("É") == [UNK]


def test_by_hand() -> None:
    tokenizer = CharTokenizer.learn(["banana", "cab"])
    assert tokenizer.characters == ("a", "b", "n", "c")
    assert tokenizer.size == 8
    assert tokenizer.encode("canxb") == [7, 4, 6, UNK, 5]
    assert tokenizer.decode([BOS, 7, 4, PAD, UNK, 5, EOS, 6, 99]) == "cab"


@pytest.mark.parametrize("token", [-1, 8])
def test_an_id_out_of_range_is_an_error(token: int) -> None:
    with pytest.raises(ArgumentError, match=f"from 0 to 7, got {token}"):
        CharTokenizer.learn(["banana", "cab"]).decode([4, token])


@pytest.mark.parametrize(("characters", "message"), [(["a", "bc"], "one code point, got 'bc'"), (["a", "b", "a"], "'a' twice")])
def test_characters_are_single_and_distinct(characters: list[str], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        CharTokenizer(characters)


GOOD = {"format": "attent character tokenizer", "version": 1, "characters": ["a", "b"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("\udcff", "cannot be read"),
        ("[]", "is not a character tokenizer"),
        (json.dumps(GOOD | {"format": "other"}), "is not a character tokenizer"),
        (json.dumps(GOOD | {"version": 2}), "version 2; this attent reads version 1"),
        (json.dumps(GOOD | {"characters": "ab"}), "must be a list"),
        (json.dumps(GOOD | {"characters": ["a", "a"]}), "'a' twice"),
        (json.dumps(GOOD | {"characters": ["a", 5]}), "got 5"),
        (json.dumps(GOOD | {"characters": ["a", ["b"]]}), "one code point"),
    ],
)
def test_a_damaged_file_is_one_line_with_its_path(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=message) as caught:
        CharTokenizer.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.json"):
        CharTokenizer.load(tmp_path / "none.json")


def test_an_id_stands_for_a_piece_and_for_a_word() -> None:
    tokenizer = CharTokenizer("a \N{CJK UNIFIED IDEOGRAPH-65E5}")
    assert [tokenizer.piece(token) for token in range(7)] == ["", "", "", "", "a", " ", "日"]
    assert [tokenizer.word(token) for token in range(7)] == [None, None, None, None, "a", None, "日"]
