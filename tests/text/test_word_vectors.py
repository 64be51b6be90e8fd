import gzip
import pickle
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _machine import memory_growth, run_in_process

from attent.errors import ArgumentError, DataError, ShapeError, UnknownNameError
from attent.text import readers
from attent.text.batches import Sequences
from attent.text.tokenizer import BOS, EOS, SPECIALS, UNK, CharTokenizer, WordTokenizer
from attent.text.tokenizers import BpeTokenizer
from attent.text.vector_formats import BLOCK_SIZE, ENDINGS, is_writable
from attent.text.word_vectors import (
    WordVectors,
    candidate_words,
    match_vocabulary,
    read,
    vocabulary_vectors,
    width_of,
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
        "  1 dropped: a different number of values than the others (line 4)",
        "  1 dropped: something other than a number (line 5)",
        "  1 dropped: not a finite number (NaN or infinity) (line 2)",
        "  1 dropped: repeated word (line 3)",
    ]
    path.write_bytes(b"2 2\n" + b"na\xefve " + np.ones(2, "<f4").tobytes() + b"cat " + np.zeros(2, "<f4").tobytes())
    result = read(path)
    assert result.words == ["na�ve", "cat"]
    assert result.report.summary()[1:] == ["  1 kept: word that is not UTF-8, its bytes replaced by � (word 1)"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "glove: empty"),
        (b"once upon a time\nthere was a cat\n", "glove: none of the first 2 lines is a word and its vector"),
        (b"a nan\nb nan\n", "no word vectors: .*glove: 2 lines read, 0 vectors of 1 numbers kept; 2 dropped: not a f"),
        (b"\xba\x16\x4f\x2f\x0c\x00", "glove: none of the first 1 lines"),
        (pickle.dumps({}), "glove: none of the first 1 lines"),
        (b"\x00\x01\x02\x03\n\x00\x00", "glove: none of the first 2 lines"),
        ("a 1 2\n".encode("utf-16"), "glove: none of the first 2 lines"),
        (gzip.compress(b"a 1 2\n" * 99, mtime=0)[:-9], "glove is cut off or damaged: "),
        (gzip.compress(b"a 1 2\n" * 99, mtime=0)[:30], "glove is cut off or damaged: "),
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
    with pytest.raises(DataError, match=r"a\.zip: none of the first"):
        read(tmp_path / "a.zip")
    with pytest.raises(DataError, match=r"nowhere cannot be read: No such file or directory$"):
        read(tmp_path / "nowhere")
    # the width is told from the beginning
    (tmp_path / "long.txt").write_text("w 1 2 3\n" * BLOCK_SIZE + "w" * (readers.MAX_LINE + 1), encoding="ascii")
    assert width_of(tmp_path / "long.txt") == 3
    monkeypatch.setattr(readers, "MAX_LINE", 1000)
    (tmp_path / "a.txt").write_bytes(b"cat 1 2 3\n" + b"dog " * 1000)
    with pytest.raises(DataError, match=r"a\.txt, line 2: has more than 1,000 bytes"):
        read(tmp_path / "a.txt")
    monkeypatch.setattr(readers, "MIN_UNPACKED", 60_000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(TEXT * 9))
    with pytest.raises(DataError, match=r"a\.gz unpacks to more than 60,000 bytes"):
        read(tmp_path / "a.gz")


@pytest.mark.parametrize("numbers", [[0.1, -0.2], [0.1, -0.2, 0.3] * 5, [0.0] * 4, [1e-30]])
def test_binary_numbers_are_never_taken_for_text(tmp_path: Path, numbers: list[float]) -> None:
    # some have no byte that text cannot have, in some encoding
    words = [f"w{n}" for n in range(700)]
    write(tmp_path / "a.bin", WordVectors(words, torch.tensor([numbers] * 700)))
    assert width_of(tmp_path / "a.bin") == len(numbers)
    assert read(tmp_path / "a.bin").words == words
    # 1.5, 2.5 … are zeros but for their high bytes; a header is text's too
    write(tmp_path / "b.bin", WordVectors(["a", "b"], torch.tensor([[1.5], [2.5]])))
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
    (tmp_path / "a.txt").write_bytes(head + b"\ncat 1 2 3\ndog 4 5 6\n")
    assert read(tmp_path / "a.txt").width == 3


def test_the_first_of_a_words_vectors_is_kept(tmp_path: Path) -> None:
    lines = [f"w{n % 1000} {n} 1" for n in range(1500)]
    (tmp_path / "a").write_text("\n".join(lines), encoding="ascii")
    result = read(tmp_path / "a")
    assert result.words == [f"w{n}" for n in range(1000)]
    assert result.vectors[:, 0].tolist() == list(range(1000))
    assert (result.report.lines, result.report.dropped["repeated word"].count) == (1500, 500)
    subset = read(tmp_path / "a", {"w999", "w7", "nowhere"})
    assert (subset.words, subset.vectors[:, 0].tolist()) == (["w7", "w999"], [7, 999])
    assert subset.report.summary()[0].endswith(": 1,500 lines read, 2 vectors of 2 numbers kept, 1,497 not needed")
    empty = read(tmp_path / "a", {"nowhere"})
    assert (len(empty), empty.vectors.shape, empty.report.skipped) == (0, (0, 2), 1500)


TEXT = b"cat 1 2\ndog 3 4\n" * 1000


WORDS = WordVectors(
    ["</s>", "Straße", "日本", "\xa0"], torch.tensor([[0.1, -2.0], [1e-30, 3.0], [1 / 3, 1e20], [0.0, 0.0]])
)


@pytest.mark.parametrize("ending", [end + gz for end in ENDINGS for gz in ("", ".gz")])
def test_what_is_written_is_read_bit_for_bit(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"words{ending}"
    write(path, WORDS)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == ending.endswith(".gz")
    reread = read(path)
    assert reread.words == WORDS.words
    assert torch.equal(reread.vectors, WORDS.vectors)
    assert reread.report.summary()[1:] == []


def test_a_line_has_the_shortest_numbers_and_the_first_bytes_tell_what_a_file_is(tmp_path: Path) -> None:
    write(tmp_path / "a", WORDS, "word2vec")
    assert (tmp_path / "a").read_text(encoding="utf-8").splitlines()[:3] == ["4 2", "</s> 0.1 -2.0", "Straße 1e-30 3.0"]
    write(tmp_path / "a", WORDS, "glove", gzipped=True)
    assert gzip.decompress((tmp_path / "a").read_bytes()).startswith(b"</s> 0.1 -2.0\n")
    (tmp_path / "plain.gz").write_bytes(TEXT)
    (tmp_path / "gzipped.bin").write_bytes(gzip.compress(TEXT))
    for name in ("plain.gz", "gzipped.bin"):
        assert read(tmp_path / name).words == ["cat", "dog"]


def test_words_with_spaces_are_written_where_they_can_be_read(tmp_path: Path) -> None:
    spaced = WordVectors([". . .", "cat", "dog"], torch.eye(3))
    for ending in (".txt", ".vec"):
        write(tmp_path / f"a{ending}", spaced)
        assert read(tmp_path / f"a{ending}").words == spaced.words
    with pytest.raises(ArgumentError, match=r"the word '\. \. \.' cannot be written in the format binary"):
        write(tmp_path / "a.bin", spaced)
    for word in ("", " a", "a\n", "a\nb"):
        with pytest.raises(ArgumentError, match="cannot be written in the format glove"):
            write(tmp_path / "b.txt", WordVectors([word], torch.ones(1, 1)))
    assert not (tmp_path / "b.txt").exists()


def test_the_name_must_say_the_format(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"must end in \.txt \(glove\), \.vec"):
        write(tmp_path / "a.csv", WORDS)
    with pytest.raises(UnknownNameError):
        write(tmp_path / "a.bin", WORDS, "bin")
    with pytest.raises(DataError, match="cannot be written"):
        write(tmp_path / "nowhere" / "a.bin", WORDS)


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
    assert (matches.lowercased, matches.parts, matches.size) == (1, 1, 7)
    assert match_vocabulary(TOKENIZER, vectors("dog"))[:3] == ([], [], 0)
    characters = match_vocabulary(CharTokenizer("aB "), vectors("a", "b"))
    assert (characters.ids, characters.lowercased, characters.parts) == ([4, 5], 1, 1)
    assert candidate_words(TOKENIZER) >= {"the", "Paris", "paris", "(", "Zug", "zug", "cat"}


def test_running_words_count_as_often_as_they_come() -> None:
    matches = match_vocabulary(TOKENIZER, vectors("the", "cat"))
    the, cat, zug = TOKENIZER.encode("the cat Zug")
    text = Sequences([[BOS, the, the, zug, EOS], [], [BOS, UNK, cat, zug, EOS]])
    assert matches.text_coverage(text) == pytest.approx(3 / 6)
    assert matches.text_coverage(Sequences([])) == 0


def test_pieces_of_words_have_no_words_vector() -> None:
    tokenizer = BpeTokenizer.learn(["low lower lowest newer wider, low"] * 20, 300)
    assert "▁low" in tokenizer.pieces("low")
    pieces = [piece for piece in map(tokenizer.piece, range(tokenizer.size)) if piece]
    parts = [piece for piece in pieces if not piece.startswith("▁")]
    assert {"e", "r", ","} <= set(parts)
    matches = match_vocabulary(tokenizer, vectors("low", "e", "r", ","))
    assert {tokenizer.piece(token) for token in matches.ids} == {"▁low", ","} | ({"▁e", "▁r"} & set(pieces))
    # the space alone is no word either
    assert matches.parts == len(parts) - 1 + ("▁" in pieces)
    assert matches.size == tokenizer.size - 4
    by_piece = match_vocabulary(tokenizer, vectors("▁low", *parts))
    assert {tokenizer.piece(token) for token in by_piece.ids} == {"▁low", *parts}
    assert by_piece.parts == 0
    # a space alone makes no vectors of pieces
    tokenizer = BpeTokenizer.learn(["the dog and the cat"] * 9, 300)
    assert "▁" in map(tokenizer.piece, range(SPECIALS, tokenizer.size))
    matches = match_vocabulary(tokenizer, vectors("▁", "the", "dog"))
    assert {tokenizer.word(token) for token in matches.ids} == {"the", "dog"}


def test_each_word_or_piece_of_a_vocabulary_has_its_embedding() -> None:
    words, embeddings = WordTokenizer([" the", "(", "\t", " (", " a b"]), torch.randn(9, 5)
    kept, left_out = vocabulary_vectors(words, embeddings, partial(is_writable, form="glove"))
    assert (list(kept.words), left_out) == (["the", "(", "a b"], 2)
    # of two ids that are one word, the first
    torch.testing.assert_close(kept.vectors, embeddings[[4, 5, 8]])
    assert [*vocabulary_vectors(words, embeddings, partial(is_writable, form="binary"))[0].words] == ["the", "("]
    tokenizer = BpeTokenizer.learn(["low lower lowest"] * 9, 280)
    kept, left_out = vocabulary_vectors(tokenizer, torch.randn(tokenizer.size, 5), bool)
    assert list(kept.words) == [piece for piece in map(tokenizer.piece, range(tokenizer.size)) if piece]
    assert left_out == 256
    assert "▁low" in kept
