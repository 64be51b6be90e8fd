import base64
import json
from pathlib import Path
from typing import Any

import pytest
import random_translators

from attent.errors import ArgumentError, DataError
from attent.text.tokenizer import BOS, EOS, PAD, UNK, marks_of, prompt_of, unknown_pieces
from attent.text.tokenizers import SentencePieceTokenizer

MARKS = ["eng_Latn", "fra_Latn"]


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[str]]:
    file = tmp_path_factory.mktemp("spm") / "source.spm"
    pieces = random_translators.learn(file, "unigram", 300)
    return file.read_bytes(), pieces


@pytest.fixture(scope="module")
def source(learnt: tuple[bytes, list[str]]) -> SentencePieceTokenizer:
    model, pieces = learnt
    return SentencePieceTokenizer(model, [*pieces, *MARKS], before=MARKS[:1], after=["</s>"], marks=MARKS)


def test_marks_stand_around_a_text_and_in_none(source: SentencePieceTokenizer) -> None:
    ids, pieces = source.encode("The dog runs."), source.pieces("The dog runs.")
    assert (pieces[0], pieces[-1], ids[-1]) == ("eng_Latn", "</s>", EOS)
    assert len(ids) == len(pieces)
    assert "".join(pieces[1:-1]) == "▁The▁dog▁runs."
    assert source.decode(ids[1:]) == source.decode(ids) == "The dog runs."
    assert source.word(ids[0]) is None
    assert source.piece(ids[0]) == "eng_Latn"
    assert prompt_of(source) == (ids[0],)
    assert marks_of(source) >= {EOS, ids[0], source.size - 1}
    assert not {source.size - 2, source.size - 1} & {*source.encode("fra_Latn")[1:]}


def test_a_text_without_pieces_has_no_tokens(source: SentencePieceTokenizer, learnt: tuple[bytes, list[str]]) -> None:
    assert source.encode("") == source.encode("  ") == source.pieces("") == []
    target = SentencePieceTokenizer(learnt[0], [*learnt[1], *MARKS], before=MARKS[1:])
    assert target.encode("") == [target.size - 1]
    assert target.pieces("") == ["fra_Latn"]


def test_what_the_list_lacks_is_unknown(learnt: tuple[bytes, list[str]]) -> None:
    tokenizer = SentencePieceTokenizer(learnt[0], [piece for piece in learnt[1] if piece != "."])
    assert tokenizer.encode("The dog.")[-1] == UNK
    assert unknown_pieces("The dog.", tokenizer) == ["."]
    assert tokenizer.decode([PAD, UNK, BOS, *tokenizer.encode("The dog"), EOS, 9]) == "The dog"
    with pytest.raises(ArgumentError, match="must be a non-empty text"):
        SentencePieceTokenizer(learnt[0], ["a", ""])


def test_a_language_at_the_beginning_is_one_token(learnt: tuple[bytes, list[str]]) -> None:
    tokenizer = SentencePieceTokenizer(learnt[0], [*learnt[1], ">>fra<<"], has_language=True)
    assert tokenizer.pieces(">>fra<< dog") == [">>fra<<", *tokenizer.pieces("dog")]
    assert tokenizer.encode(">>fra<< dog")[0] == tokenizer.size - 1
    assert tokenizer.encode(">>xyz<<dog")[0] == UNK
    assert tokenizer.pieces("dog >>fra<<")[0] != ">>fra<<"


def test_it_is_saved_and_loaded(source: SentencePieceTokenizer, tmp_path: Path) -> None:
    source.save(tmp_path / "t.json")
    loaded = SentencePieceTokenizer.load(tmp_path / "t.json")
    for text in random_translators.texts(50):
        assert loaded.encode(text) == source.encode(text)
    assert (loaded.size, loaded.model, loaded.prompt) == (source.size, source.model, source.prompt)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"sentencepiece": "x"}, "damaged"),
        ({"sentencepiece": base64.b64encode(b"no model").decode()}, "not a SentencePiece model"),
        ({"pieces": ["a", "a"]}, "'a' twice"),
        ({"pieces": ["a", 1]}, "its pieces must be a list of texts"),
        ({"before": ["deu_Latn"]}, "a mark must be one of the pieces, got 'deu_Latn'"),
        ({"marks": None}, "its marks must be a list"),
        ({"version": 2}, "version"),
    ],
)
def test_a_damaged_file_is_told_of(
    source: SentencePieceTokenizer, tmp_path: Path, changed: dict[str, Any], says: str
) -> None:
    source.save(tmp_path / "t.json")
    content = json.loads((tmp_path / "t.json").read_text("utf-8"))
    (tmp_path / "t.json").write_text(json.dumps(content | changed), "utf-8")
    with pytest.raises(DataError, match=says):
        SentencePieceTokenizer.load(tmp_path / "t.json")
