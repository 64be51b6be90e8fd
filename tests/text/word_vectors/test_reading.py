import gzip
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _machine import memory_growth, run_in_process

from attent.errors import DataError
from attent.text import readers
from attent.text.report import VectorsReport
from attent.text.word_vectors import WordVectors, formats, read, reading, write
from attent.text.word_vectors.formats import Block, text_blocks
from attent.text.word_vectors.reading import NOT_FINITE, NOT_UTF8, REPEATED, VectorCollector, open_vectors, width_of

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
    zipped = tmp_path / "all.zip"
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.write(path, "inside")
    if not name.endswith(".gz"):
        assert torch.equal(read(zipped).vectors, result.vectors)


@pytest.mark.parametrize("name", ["a.vec", "a.bin", "a.vec.gz", "a.bin.gz"])
def test_gensim_reads_what_is_written(keyed: Any, tmp_path: Path, name: str) -> None:
    write(tmp_path / name, WordVectors(NAMES, torch.from_numpy(keyed.vectors)))
    reference = type(keyed).load_word2vec_format(str(tmp_path / name), binary=".bin" in name)
    assert reference.index_to_key == NAMES
    assert np.array_equal(reference.vectors, keyed.vectors)


def test_the_nearest_are_gensims(keyed: Any) -> None:
    vectors = WordVectors(NAMES, torch.from_numpy(keyed.vectors))
    actual, reference = vectors.nearest("the", 20), keyed.most_similar("the", topn=20)
    assert [word for word, _ in actual] == [word for word, _ in reference]
    assert [cosine for _, cosine in actual] == pytest.approx([cosine for _, cosine in reference], abs=1e-6)


def test_words_that_are_not_utf8_are_kept_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "latin.bin"
    path.write_bytes(b"2 2\n" + b"na\xefve " + np.ones(2, "<f4").tobytes() + b"cat " + np.zeros(2, "<f4").tobytes())
    result = read(path)
    assert result.words == ["na�ve", "cat"]
    assert result.report.summary()[1:] == ["  1 kept: word that is not UTF-8, its bytes replaced by � (word 1)"]


def test_damage_is_reported_and_reading_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("a 1 2 3\nb nan 2 3\na 4 5 6\nc 1 2\nd x 2 3\ne 1 2 3\n", encoding="utf-8")
    result = read(path)
    assert result.words == ["a", "e"]
    assert result["a"].tolist() == [1, 2, 3]
    assert result.report.summary() == [
        f"{path}: 6 lines read, 2 vectors of 3 numbers kept",
        "  1 dropped: not as many numbers as the others (line 4)",
        "  1 dropped: something else where a number belongs (line 5)",
        "  1 dropped: not a finite number (NaN or infinity) (line 2)",
        "  1 dropped: a word that came before (line 3)",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "glove: empty"),
        (b"once upon a time\nthere was a cat\n", "glove: none of the first 2 lines is a word and its vector"),
        (
            b"a nan\nb nan\n",
            "no word vectors: .*glove: 2 lines read, 0 vectors of 1 numbers kept; 2 dropped: not a finite",
        ),
        (
            b"\xba\x16\x4f\x2f\x0c\x00",
            "glove holds no word vectors: it is a fastText model; its vectors are in the .vec beside it",
        ),
        (
            pickle.dumps({}),
            "glove holds no word vectors: it is a pickle, as gensim saves its own; save_word2vec_format writes one",
        ),
        (b"\x00\x01\x02\x03\n\x00\x00", "glove holds no word vectors: it is neither text nor word2vec's binary form"),
        ("a 1 2\n".encode("utf-16"), "glove holds no word vectors: it is neither text nor word2vec's binary form"),
        (gzip.compress(b"a 1 2\n" * 99, mtime=0)[:-9], "glove is cut off or damaged: "),
    ],
)
def test_what_holds_no_word_vectors_is_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "glove"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("numbers", [[0.1, -0.2], [0.1, -0.2, 0.3] * 5, [0.0] * 4, [1e-30]])
def test_binary_numbers_are_never_taken_for_text(tmp_path: Path, numbers: list[float]) -> None:
    # some have no byte that text cannot have, in some encoding
    words = [f"w{n}" for n in range(700)]
    write(tmp_path / "a.bin", WordVectors(words, torch.tensor([numbers] * 700)))
    assert width_of(tmp_path / "a.bin") == len(numbers)
    assert read(tmp_path / "a.bin").words == words


def test_the_width_is_told_from_the_beginning(tmp_path: Path) -> None:
    lines = [f"w{n} 1 2 3" for n in range(200_000)]
    (tmp_path / "long.txt").write_text("\n".join(lines), encoding="ascii")
    report = VectorsReport("x")
    with open_vectors(tmp_path / "long.txt") as stream:
        next(text_blocks(stream, report))
    assert (width_of(tmp_path / "long.txt"), report.lines) == (3, formats.BLOCK_SIZE)


def test_binary_numbers_that_look_like_text_are_told_by_what_is_none(tmp_path: Path) -> None:
    # 1.5, 2.5 … are zeros but for their high bytes; a header is text's too
    write(tmp_path / "a.bin", WordVectors(["a", "b"], torch.tensor([[1.5], [2.5]])))
    assert read(tmp_path / "a.bin").vectors.tolist() == [[1.5], [2.5]]
    (tmp_path / "a.bin").write_text("2 1\na 1.5\nb 2.5\n", encoding="ascii")
    assert read(tmp_path / "a.bin").vectors.tolist() == [[1.5], [2.5]]


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


def test_a_line_without_an_end_is_refused_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MAX_LINE", 1000)
    (tmp_path / "a.txt").write_bytes(b"cat 1 2 3\n" + b"dog " * 1000)
    with pytest.raises(DataError, match=r"a\.txt, line 2: has more than 1,000 bytes"):
        read(tmp_path / "a.txt")


def block(first: int, *words: bytes, width: int = 3) -> Block:
    positions = list(range(first, first + len(words)))
    return Block(
        positions, list(words), np.arange(len(words) * width, dtype=np.float32).reshape(-1, width) + 100 * first
    )


def test_pieces_make_one_whatever_the_sizes_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHUNK", 5 * 4 * 3)
    blocks = [block(1, b"a", b"b"), block(3, *(b"%d" % n for n in range(11))), block(14, b"c")]
    gathered = VectorCollector(3, VectorsReport("x"))
    for item in blocks:
        gathered.add(item)
    assert list(gathered.rows) == ["a", "b", *map(str, range(11)), "c"]
    torch.testing.assert_close(
        gathered.vectors(), torch.from_numpy(np.concatenate([item.vectors for item in blocks])), rtol=0, atol=0
    )


def test_the_first_of_a_words_vectors_is_kept_and_none_that_is_not_finite() -> None:
    report = VectorsReport("x")
    gathered, damaged = VectorCollector(3, report), block(1, b"a", b"b", b"a", b"c")
    damaged.vectors[1, 2], damaged.vectors[3, 0] = np.nan, np.inf
    gathered.add(damaged)
    gathered.add(block(5, b"b", b"a"))
    assert list(gathered.rows) == ["a", "b"]
    assert gathered.vectors().tolist() == [[100, 101, 102], [500, 501, 502]]
    assert {reason: tally.first for reason, tally in report.dropped.items()} == {NOT_FINITE: [2, 4], REPEATED: [3, 6]}


def test_a_word_that_is_not_utf8_keeps_its_vector() -> None:
    report = VectorsReport("x")
    gathered = VectorCollector(3, report)
    gathered.add(block(1, b"na\xefve", "naïve".encode()))
    assert list(gathered.rows) == ["na�ve", "naïve"]
    assert report.noted[NOT_UTF8].first == [1]


def test_only_what_is_wanted_is_kept() -> None:
    report = VectorsReport("x")
    gathered = VectorCollector(3, report, {"b", "d"})
    gathered.add(block(1, b"a", b"b", b"c"))
    assert (list(gathered.rows), report.skipped) == (["b"], 2)
    assert gathered.vectors().tolist() == [[103, 104, 105]]


TEXT = b"cat 1 2\ndog 3 4\n" * 1000


def content(path: Path) -> bytes:
    with open_vectors(path) as stream:
        return stream.read()


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in members.items():
            file.writestr(name.replace("_", "."), text)
    return path


def test_the_first_bytes_tell_what_a_file_is_and_its_name_does_not(tmp_path: Path) -> None:
    (tmp_path / "plain.gz").write_bytes(TEXT)
    (tmp_path / "gzipped.txt").write_bytes(gzip.compress(TEXT))
    zipped = archive(tmp_path / "zipped.bin", only_txt=TEXT)
    for path in (tmp_path / "plain.gz", tmp_path / "gzipped.txt", zipped, zipped / "only.txt"):
        assert content(path) == TEXT


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MIN_UNPACKED", 60_000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a" * 200_000))
    for path in (tmp_path / "a.gz", archive(tmp_path / "a.zip", a_txt=b"a" * 200_000)):
        with pytest.raises(DataError, match=rf"{path.name} unpacks to more than 60,000 bytes"):
            content(path)


def test_of_several_files_in_an_archive_one_is_named_behind_it(tmp_path: Path) -> None:
    path = archive(tmp_path / "glove.zip", small_txt=b"a 1\n", large_txt=TEXT)
    assert content(path / "large.txt") == TEXT
    with pytest.raises(DataError, match=r"glove.zip holds 2 files; name one of them, as .*glove.zip/small.txt$"):
        content(path)
    with pytest.raises(DataError, match=r"glove.zip holds no other.txt, but small.txt, large.txt$"):
        content(path / "other.txt")
    with pytest.raises(DataError, match=r"empty.zip is empty$"):
        with zipfile.ZipFile(tmp_path / "empty.zip", "w") as file:
            file.writestr("__MACOSX/only.txt", b"")
        content(tmp_path / "empty.zip")


def test_what_is_cut_off_is_said(tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    for whole in (gzip.compress(TEXT), archive(tmp_path / "whole.zip", only_txt=TEXT).read_bytes()):
        path.write_bytes(whole[: len(whole) * 2 // 3])
        with pytest.raises(DataError, match=r"vectors is cut off or damaged: "):
            content(path)


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(TEXT)
    with pytest.raises(DataError, match=r"nowhere cannot be read: No such file or directory$"):
        content(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"inside cannot be read: .*plain is no zip archive$"):
        content(tmp_path / "plain" / "inside")
    # the flag of an encrypted member, in its own header and in the directory
    locked = bytearray(archive(tmp_path / "locked.zip", only_txt=TEXT).read_bytes())
    locked[6] |= 1
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "locked.zip").write_bytes(locked)
    with pytest.raises(DataError, match=r"locked.zip cannot be read: only.txt in it is encrypted$"):
        content(tmp_path / "locked.zip")
