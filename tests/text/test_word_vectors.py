import gzip
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _machine import memory_growth, run_in_process

from attent.errors import ArgumentError, DataError, ShapeError
from attent.text import readers
from attent.text.tokenizer import SPECIALS, CharTokenizer, WordTokenizer
from attent.text.tokenizers import BpeTokenizer
from attent.text.vector_formats import width_of
from attent.text.word_vectors import (
    WordVectors,
    candidate_words,
    match_vocabulary,
    read,
    vocabulary_vectors,
    write,
)

NAMES = ["</s>", "the", "Straße", "New_York", "42", "日本", *(f"w{n}" for n in range(1200))]
# as gensim's save_word2vec_format writes them: keyword arguments by name of file
WRITTEN: dict[str, dict[str, Any]] = {
    "glove.txt": {"write_header": False},
    "word2vec.txt": {},
    "fasttext.vec": {},
    "word2vec.bin": {"binary": True},
    "glove.txt.gz": {"write_header": False},
    "word2vec.bin.gz": {"binary": True},
}


@pytest.fixture(scope="module")
def keyed() -> Any:
    """gensim's own vectors."""
    models = pytest.importorskip("gensim.models", reason="gensim is not installed")
    keyed_vectors = models.KeyedVectors(11)
    keyed_vectors.add_vectors(NAMES, np.random.default_rng(0).normal(size=(len(NAMES), 11)).astype(np.float32))
    return keyed_vectors


# gensim leaves the file open whose lines it counts
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", WRITTEN)
def test_what_gensim_writes_is_read_as_gensim_reads_it(keyed: Any, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    keyed.save_word2vec_format(str(path), **WRITTEN[name])
    result = read(path)
    reference = type(keyed).load_word2vec_format(str(path), binary=".bin" in name, no_header="glove" in name)
    assert result.words == reference.index_to_key == NAMES
    assert np.array_equal(result.vectors.numpy(), reference.vectors)
    assert len(result.report.summary()) == 1
    assert width_of(path) == 11
    subset = read(path, ["w7", "nowhere", "Straße"])
    assert subset.words == ["Straße", "w7"]
    assert torch.equal(subset.vectors, torch.stack([result["Straße"], result["w7"]]))


def test_damage_is_reported_and_reading_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("a 1 2 3\nb nan 2 3\na 4 5 6\nc 1 2\nd x 2 3\ne 1 2 3\n", encoding="utf-8")
    result = read(path)
    assert result.words == ["a", "e"]
    assert result["a"].tolist() == [1, 2, 3]
    assert result.report.summary() == [
        f"{path}: 6 lines read, 2 vectors of 3 numbers kept",
        "  1 dropped: not a finite number (NaN or infinity) (line 2)",
        "  1 dropped: repeated word (line 3)",
        "  1 dropped: a different number of values than the others (line 4)",
        "  1 dropped: something other than a number (line 5)",
    ]
    path.write_bytes(b"2 2\n" + b"na\xefve " + np.ones(2, "<f4").tobytes() + b"cat " + np.zeros(2, "<f4").tobytes())
    result = read(path)
    assert result.words == ["na�ve", "cat"]
    assert len(result.report.summary()) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "glove: empty"),
        (b"once upon a time\nthere was a cat\n", "glove: line 1 is not a word and its vector"),
        (b"a nan\nb nan\n", "no word vectors: .*glove: 2 lines read, 0 vectors of 1 numbers kept; 2 dropped: not a f"),
        (b"\xba\x16\x4f\x2f\x0c\x00", "glove: line 1 is not"),
        (pickle.dumps({}), "glove: line 1 is not"),
        (b"\x00\x01\x02\x03\n\x00\x00", "glove: line 1 is not"),
        ("a 1 2\n".encode("utf-16"), "glove: line 1 is not"),
    ],
)
def test_what_holds_no_word_vectors_is_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "glove"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_a_file_has_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", TEXT)
    with pytest.raises(DataError, match=r"a\.zip: line 1 is not"):
        read(tmp_path / "a.zip")
    with pytest.raises(DataError, match=r"nowhere cannot be read: No such file or directory$"):
        read(tmp_path / "nowhere")
    # the width is told from the beginning
    (tmp_path / "long.txt").write_text("w 1 2 3\n" * 512 + "w" * (readers.MAX_LINE + 1), encoding="ascii")
    assert width_of(tmp_path / "long.txt") == 3
    monkeypatch.setattr(readers, "MAX_LINE", 1000)
    (tmp_path / "a.txt").write_bytes(b"cat 1 2 3\n" + b"dog " * 1000)
    with pytest.raises(DataError, match=r"a\.txt, line 2: has more than 1,000 bytes"):
        read(tmp_path / "a.txt")
    monkeypatch.setattr(readers, "MIN_UNPACKED", 60_000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(TEXT * 9))
    with pytest.raises(DataError, match=r"a\.gz unpacks to more than 60,000 bytes"):
        read(tmp_path / "a.gz")


def write_binary(path: Path, words: dict[str, list[float]]) -> None:
    head = f"{len(words)} {len(next(iter(words.values())))}\n".encode()
    path.write_bytes(
        head
        + b"".join(b"%b %b\n" % (word.encode(), np.array(vector, "<f4").tobytes()) for word, vector in words.items())
    )


@pytest.mark.parametrize("numbers", [[0.1, -0.2], [0.1, -0.2, 0.3] * 5, [0.0] * 4, [1e-30]])
def test_binary_numbers_are_never_taken_for_text(tmp_path: Path, numbers: list[float]) -> None:
    # some have no byte that text cannot have, in some encoding
    words = [f"w{n}" for n in range(700)]
    write_binary(tmp_path / "a.bin", dict.fromkeys(words, numbers))
    assert width_of(tmp_path / "a.bin") == len(numbers)
    assert read(tmp_path / "a.bin").words == words
    # 1.5, 2.5 … are zeros but for their high bytes; a header is text's too
    write_binary(tmp_path / "b.bin", {"a": [1.5], "b": [2.5]})
    assert read(tmp_path / "b.bin").vectors.tolist() == [[1.5], [2.5]]
    (tmp_path / "b.bin").write_text("2 1\na 1.5\nb 2.5\n", encoding="ascii")
    assert read(tmp_path / "b.bin").vectors.tolist() == [[1.5], [2.5]]


def much(path: Path) -> float | None:
    """The memory in MiB that reading takes; the numbers are checked on the way."""
    vectors: list[WordVectors] = []
    memory = memory_growth(lambda: vectors.append(read(path)))
    assert (len(vectors[0]), vectors[0].width) == (400_000, 300)
    assert vectors[0]["w399999"][:3].tolist() == [pytest.approx(value) for value in (0.1, -0.2, 0.3)]
    return memory


@pytest.mark.slow
@pytest.mark.parametrize("binary", [False, True])
def test_four_hundred_thousand_vectors_take_less_than_twice_their_size(tmp_path: Path, binary: bool) -> None:
    path, vector = tmp_path / "large", ([0.1, -0.2, 0.3] * 100)
    entry = np.array(vector, "<f4").tobytes() if binary else " ".join(map(str, vector)).encode() + b"\n"
    with path.open("wb") as file:
        file.write(b"400000 300\n" * binary)
        for number in range(400_000):
            file.write(b"w%d " % number + entry)
    memory = run_in_process(much, path)
    path.unlink()
    if memory is None:
        pytest.skip("this system does not tell how much memory a process has held")
    assert memory < 2 * 400_000 * 300 * 4 / 2**20


@pytest.mark.parametrize(
    "head", [b"9" * 30 + b" 3\n", b"3 " + b"9" * 30 + b"\n", b"9" * 5000 + b" 3\n", b"3 2000000000\n", b"3 999999999\n"]
)
def test_a_header_that_says_what_no_file_holds_is_refused_and_named(tmp_path: Path, head: bytes) -> None:
    (tmp_path / "a.bin").write_bytes(head + b"cat \x00\x01\x02\x03dog \x00\x01\x02\x03\n")
    with pytest.raises(DataError, match=r"a\.bin"):
        read(tmp_path / "a.bin")


def test_the_first_of_a_words_vectors_is_kept(tmp_path: Path) -> None:
    lines = [f"w{n % 1000} {n} 1" for n in range(1500)]
    (tmp_path / "a").write_text("\n".join(lines), encoding="ascii")
    result = read(tmp_path / "a")
    assert result.words == [f"w{n}" for n in range(1000)]
    assert result.vectors[:, 0].tolist() == list(range(1000))
    assert (result.report.lines, result.report.dropped["repeated word"].count) == (1500, 500)
    subset = read(tmp_path / "a", {"w999", "w7", "nowhere"})
    assert (subset.words, subset.vectors[:, 0].tolist()) == (["w7", "w999"], [7, 999])
    assert subset.report.summary()[0].endswith(": 1,500 lines read, 2 vectors of 2 numbers kept")
    empty = read(tmp_path / "a", {"nowhere"})
    assert (len(empty), empty.vectors.shape) == (0, (0, 2))


TEXT = b"cat 1 2\ndog 3 4\n" * 1000


WORDS = WordVectors(
    ["</s>", "Straße", "日本", "\xa0"], torch.tensor([[0.1, -2.0], [1e-30, 3.0], [1 / 3, 1e20], [0.0, 0.0]])
)


def test_what_is_written_is_read_bit_for_bit(tmp_path: Path) -> None:
    write(tmp_path / "a", WORDS)
    lines = (tmp_path / "a").read_text(encoding="utf-8").split("\n")
    assert lines[:3] == ["4 2", "</s> 0.1 -2.0", "Straße 1e-30 3.0"]
    result = read(tmp_path / "a")
    assert result.words == WORDS.words
    assert torch.equal(result.vectors, WORDS.vectors)
    assert len(result.report.summary()) == 1


def test_a_gzipped_file_is_read_by_its_name(tmp_path: Path) -> None:
    packed = gzip.compress(b"".join(b"w%d 1 2\n" % n for n in range(999)))
    (tmp_path / "a.vec.gz").write_bytes(packed)
    assert len(read(tmp_path / "a.vec.gz")) == 999
    assert width_of(tmp_path / "a.vec.gz") == 2
    for content in (packed[:-9], packed[:1000], packed[:-20] + bytes(20)):
        (tmp_path / "a.vec.gz").write_bytes(content)
        with pytest.raises(DataError, match=r"a\.vec\.gz cannot be read: "):
            read(tmp_path / "a.vec.gz")


def test_words_with_spaces_are_read_but_not_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("cat 1 2\n. . . 3 4\n", encoding="ascii")
    assert read(tmp_path / "a")[". . ."].tolist() == [3, 4]
    assert read(tmp_path / "a", {". . ."}).words == [". . ."]
    for word in ("", " a", "a\n", ". . ."):
        with pytest.raises(ArgumentError, match=re.escape(f"the word {word!r} cannot be written")):
            write(tmp_path / "b", WordVectors([word], torch.ones(1, 1)))
    assert not (tmp_path / "b").exists()
    with pytest.raises(DataError, match="cannot be written"):
        write(tmp_path / "nowhere" / "a.vec", WORDS)


ANIMALS = WordVectors(["dog", "cat", "hound", "Rome"], torch.tensor([[2.0, 0.0], [1.0, 1.0], [3.0, 0.0], [0.0, -1.0]]))


def test_words_are_looked_up_and_the_nearest_have_the_largest_cosine() -> None:
    assert (len(ANIMALS), ANIMALS.width, "cat" in ANIMALS, "cow" in ANIMALS) == (4, 2, True, False)
    assert ANIMALS["hound"].tolist() == [3, 0]

    with pytest.raises(ArgumentError, match=r"^no vector for 'cow'$"):
        ANIMALS["cow"]
    with pytest.raises(ArgumentError, match=r"^no vector for 'DOG', only 'dog'$"):
        ANIMALS["DOG"]
    (first, first_cosine), (second, half), (third, third_cosine) = ANIMALS.nearest("dog", 3)
    assert (first, second, third) == ("hound", "cat", "Rome")
    assert (first_cosine, half, third_cosine) == pytest.approx((1, 0.5**0.5, 0))
    assert ANIMALS.nearest(torch.tensor([0.0, -5.0]), 4)[0] == ("Rome", 1)
    assert [word for word, _ in ANIMALS.nearest("dog", 1)] == ["hound"]


def test_cosines_are_those_of_plain_torch() -> None:
    vectors = torch.randn(1003, 7)
    word_vectors = WordVectors([f"w{n}" for n in range(1003)], vectors)
    cosines = torch.cosine_similarity(vectors[5], vectors)
    cosines[5] = -2
    best = cosines.argsort(descending=True)
    nearest = word_vectors.nearest("w5", 1002)
    assert [word for word, _ in nearest[:50]] == [f"w{n}" for n in best[:50].tolist()]
    torch.testing.assert_close(torch.tensor([cosine for _, cosine in nearest]), cosines[best[:-1]])


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"one for each of 2 words, got \(3, 4\)"):
        WordVectors(["a", "b"], torch.zeros(3, 4))
    with pytest.raises(ArgumentError, match="words must be distinct, got 'a' twice"):
        _ = WordVectors(["a", "b", "a"], torch.zeros(3, 4)).rows
    with pytest.raises(ShapeError, match=r"a vector must be \(2,\), got \(3,\)"):
        ANIMALS.nearest(torch.zeros(3))
    for n in (0, 4):
        with pytest.raises(ArgumentError, match=f"n must be from 1 to 3, got {n}"):
            ANIMALS.nearest("dog", n)


TOKENIZER = WordTokenizer([" the", " Paris", " (", "(", " Zug", "\t", " cat"])


def vectors(*words: str) -> WordVectors:
    return WordVectors(list(words), torch.arange(float(len(words)))[:, None])


def test_words_are_found_as_written_and_else_lower_cased() -> None:
    matches = match_vocabulary(TOKENIZER, vectors("paris", "Paris", "zug", "(", "the", "THE"))
    rows = {TOKENIZER.piece(token): row for token, row in zip(matches.ids, matches.rows, strict=True)}
    assert rows == {" the": 4, " Paris": 1, " (": 3, "(": 3, " Zug": 2}
    assert matches.size == 7
    assert match_vocabulary(TOKENIZER, vectors("dog"))[:2] == ([], [])
    characters = match_vocabulary(CharTokenizer("aB "), vectors("a", "b"))
    assert characters.ids == [4, 5]
    assert candidate_words(TOKENIZER) >= {"the", "Paris", "paris", "(", "Zug", "zug", "cat"}


def test_pieces_of_words_have_no_words_vector() -> None:
    tokenizer = BpeTokenizer.learn(["low lower lowest newer wider, low"] * 20, 300)
    assert "▁low" in tokenizer.pieces("low")
    pieces = [piece for piece in map(tokenizer.piece, range(tokenizer.size)) if piece]
    parts = [piece for piece in pieces if not piece.startswith("▁")]
    assert {"e", "r", ","} <= set(parts)
    matches = match_vocabulary(tokenizer, vectors("low", "e", "r", ","))
    assert {tokenizer.piece(token) for token in matches.ids} == {"▁low", ","} | ({"▁e", "▁r"} & set(pieces))
    assert matches.size == tokenizer.size - 4
    by_piece = match_vocabulary(tokenizer, vectors("▁low", *parts))
    assert {tokenizer.piece(token) for token in by_piece.ids} == {"▁low", *parts}
    # a space alone makes no vectors of pieces
    tokenizer = BpeTokenizer.learn(["the dog and the cat"] * 9, 300)
    assert "▁" in map(tokenizer.piece, range(SPECIALS, tokenizer.size))
    matches = match_vocabulary(tokenizer, vectors("▁", "the", "dog"))
    assert {tokenizer.word(token) for token in matches.ids} == {"the", "dog"}


def test_each_word_or_piece_of_a_vocabulary_has_its_embedding() -> None:
    words, embeddings = WordTokenizer([" the", "(", "\t", " (", " a b"]), torch.randn(9, 5)
    kept, left_out = vocabulary_vectors(words, embeddings)
    assert (list(kept.words), left_out) == (["the", "("], 3)
    # of two ids that are one word, the first
    torch.testing.assert_close(kept.vectors, embeddings[[4, 5]])
    tokenizer = BpeTokenizer.learn(["low lower lowest"] * 9, 280)
    kept, left_out = vocabulary_vectors(tokenizer, torch.randn(tokenizer.size, 5))
    assert list(kept.words) == [piece for piece in map(tokenizer.piece, range(tokenizer.size)) if piece]
    assert left_out == 256
    assert "▁low" in kept
