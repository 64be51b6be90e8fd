import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attent.errors import ArgumentError, DataError, UnknownNameError
from attent.text import tokenizers
from attent.text.tokenizer import BOS, EOS, PAD, SPECIALS, UNK
from attent.text.tokenizers import KINDS as NAMED
from attent.text.tokenizers import LEARNT as LEARNABLE
from attent.text.tokenizers import BpeTokenizer, SubwordTokenizer, UnigramTokenizer, learn, suitable_size

STRANGE = [
    "👩‍🚀 fliegt 👍🏽!", "e\u0301 é ê\u0323", "\u0301 alone", "a\tb\t", "two  spaces   three", " before", "after ", "",
    " ", "   ",
    "▁ ▁▁ a▁b", "\U0010ffff\U0010fffe ▁", "<s> </s> <unk> <pad> <0x41>", "⁇ ▅ \x00", "a\u00a0b\u3000c", "\ufeffx",
    "line\nfeed\r",
]  # fmt: skip
LINES = [
    f"the {word} {variant} on the street"
    for word in ("dog", "cat", "bird")
    for variant in ("walks", "walked", "is walking", "sleeps")
]
KINDS: dict[str, type[SubwordTokenizer]] = {"bpe": BpeTokenizer, "unigram": UnigramTokenizer}
LEARNT = {kind: tokenizer.learn([*LINES, *STRANGE], 340) for kind, tokenizer in KINDS.items()}
full = pytest.mark.parametrize("kind", KINDS)


@full
@given(text=st.text())
def test_every_text_comes_back(kind: str, text: str) -> None:
    tokenizer = LEARNT[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(SPECIALS <= token < tokenizer.size for token in ids)
    assert len(tokenizer.pieces(text)) == len(ids)


@full
def test_strange_text_comes_back(kind: str) -> None:
    for tokenizer in (LEARNT[kind], KINDS[kind].learn(LINES, 300)):
        for line in STRANGE:
            ids = tokenizer.encode(line)
            assert tokenizer.decode(ids) == line
            assert all(SPECIALS <= token < tokenizer.size for token in ids)
            assert tokenizer.pieces(line, ids) == tokenizer.pieces(line)
    if kind == "bpe":
        assert LEARNT[kind].pieces("the street")[0] == "▁the"
        assert LEARNT[kind].pieces("\x07") == ["▁", "<0x07>"]


@full
def test_learning_gives_the_same_pieces_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizers, "SAMPLE_SIZE", 7)
    first, second = (KINDS[kind].learn(LINES, 300) for _ in range(2))
    assert [first.pieces(line) for line in LINES] == [second.pieces(line) for line in LINES]


@full
def test_no_piece_holds_a_space_but_at_its_beginning(kind: str) -> None:
    """Words are cut one by one, wherever spaces are."""
    tokenizer = KINDS[kind].learn(["  two  spaces   three "] * 7 + ["    "] * 7 + LINES, 340)
    for line in [*LINES, *STRANGE, "  two  spaces   three "]:
        assert all("▁" not in piece[1:] for piece in tokenizer.pieces(line))


@full
def test_special_ids_leave_no_trace(kind: str) -> None:
    tokenizer = LEARNT[kind]
    the, street = tokenizer.encode("the"), tokenizer.encode("street")
    assert tokenizer.decode([BOS, *the, PAD, UNK, *street, EOS, *the, 99_999]) == "the street"
    for token in (-1, tokenizer.size):
        with pytest.raises(ArgumentError, match=f"got {token}"):
            tokenizer.decode([token])


@full
def test_what_cannot_be_learnt_is_refused(kind: str) -> None:
    with pytest.raises(ArgumentError, match=r"must be at least \d+, got 261"):
        KINDS[kind].learn(LINES, 261)
    assert KINDS[kind].learn(LINES, 5000).size < 5001
    for lines in ([], ["", "  "]):
        with pytest.raises(DataError, match="no text to learn"):
            KINDS[kind].learn(lines, 300)


@pytest.mark.parametrize("model", [None, "~", "", "é", base64.b64encode(b"other").decode()])
def test_a_damaged_file_is_named(tmp_path: Path, model: object) -> None:
    path, content = tmp_path / "tokenizer.json", {"format": "attent bpe tokenizer", "version": 1}
    path.write_text(json.dumps(content | {"sentencepiece": model}), encoding="utf-8")
    with pytest.raises(DataError, match="is damaged") as caught:
        BpeTokenizer.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("piece", "broken", "says"),
    [
        (b"lowe", b"l\xffwe", "a piece of the SentencePiece model is not UTF-8"),
        (b"<0x0A>", b"<0\xd80A>", "not a SentencePiece model"),
    ],
)
def test_a_piece_that_is_no_text_is_damage(tmp_path: Path, piece: bytes, broken: bytes, says: str) -> None:
    BpeTokenizer.learn(["low lower lowest newer wider"] * 20, 300).save(tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    model = base64.b64decode(content["sentencepiece"])
    assert piece in model
    content["sentencepiece"] = base64.b64encode(model.replace(piece, broken)).decode()
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=rf"tokenizer\.json is damaged: {says}"):
        BpeTokenizer.load(tmp_path / "tokenizer.json")


@full
def test_an_id_stands_for_a_piece_and_for_a_word(kind: str) -> None:
    tokenizer = KINDS[kind].learn(["low lower lowest newer wider, low"] * 20, 300)
    ids = range(tokenizer.size)
    assert [tokenizer.piece(token) for token in tokenizer.encode("low, er")] == tokenizer.pieces("low, er")
    words = {tokenizer.piece(token): tokenizer.word(token) for token in ids}
    assert (words["▁low"], words[","], words["e"], words[""]) == ("low", ",", None, None)
    # special ids and bytes are neither
    assert sum(not tokenizer.piece(token) for token in ids) == SPECIALS + 256


TEXTS = ["the dog walks", "the cat walks", "a dog sleeps"] * 7


@pytest.mark.parametrize("kind", LEARNABLE)
def test_every_kind_is_learnt_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    tokenizer = learn(kind, TEXTS)
    assert isinstance(tokenizer, NAMED[kind])
    tokenizer.save(tmp_path / "t.json")
    loaded = NAMED[kind].load(tmp_path / "t.json")
    for line in TEXTS:
        assert loaded.encode(line) == tokenizer.encode(line)
        assert loaded.decode(tokenizer.encode(line)) == line


@pytest.mark.parametrize(("kind", "size"), [("word", 7), ("bpe", 283), ("unigram", 275)])
def test_a_size_is_kept_to(kind: str, size: int) -> None:
    assert learn(kind, TEXTS, size).size == size
    with pytest.raises(ArgumentError, match="every character"):
        learn("char", TEXTS, 30)
    with pytest.raises(UnknownNameError, match="did you mean 'unigram'"):
        learn("unigrams", TEXTS)


@pytest.mark.parametrize(("count", "pieces"), [(100, 300), (10_000, 3000), (300_000, 16_000)])
def test_the_size_grows_with_the_text_up_to_a_limit(count: int, pieces: int) -> None:
    assert suitable_size("ab" for _ in range(count)) == 4 + 256 + 2 + pieces
