import gzip
from pathlib import Path

import pytest
import torch

from attent.errors import ArgumentError, DataError, UnknownNameError
from attent.text.word_vectors import WordVectors, read, write
from attent.text.word_vectors.formats import is_writable

FOUND = WordVectors(
    ["</s>", "Straße", "日本", "\xa0"], torch.tensor([[0.1, -2.0], [1e-30, 3.0], [1 / 3, 1e20], [0.0, 0.0]])
)


@pytest.mark.parametrize("ending", [".txt", ".vec", ".bin", ".txt.gz", ".vec.gz", ".bin.gz"])
def test_what_is_written_is_read_bit_for_bit(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"words{ending}"
    write(path, FOUND)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == ending.endswith(".gz")
    reread = read(path)
    assert reread.words == FOUND.words
    assert torch.equal(reread.vectors, FOUND.vectors)
    assert reread.report.summary()[1:] == []


def test_a_line_has_the_shortest_numbers(tmp_path: Path) -> None:
    write(tmp_path / "a", FOUND, "word2vec")
    assert (tmp_path / "a").read_text(encoding="utf-8").splitlines()[:3] == ["4 2", "</s> 0.1 -2.0", "Straße 1e-30 3.0"]
    write(tmp_path / "a", FOUND, "glove", gzipped=True)
    assert gzip.decompress((tmp_path / "a").read_bytes()).startswith(b"</s> 0.1 -2.0\n")


def test_words_with_spaces_are_written_where_they_can_be_read(tmp_path: Path) -> None:
    spaced = WordVectors([". . .", "cat", "dog"], torch.eye(3))
    for ending in (".txt", ".vec"):
        write(tmp_path / f"a{ending}", spaced)
        assert read(tmp_path / f"a{ending}").words == spaced.words
    with pytest.raises(ArgumentError, match=r"the format binary cannot hold the word '\. \. \.'$"):
        write(tmp_path / "a.bin", spaced)
    for word in ("", " a", "a\n", "a\nb"):
        with pytest.raises(ArgumentError, match="the format glove cannot hold the word "):
            write(tmp_path / "b.txt", WordVectors([word], torch.ones(1, 1)))
    assert not (tmp_path / "b.txt").exists()


def test_the_name_must_say_the_format(tmp_path: Path) -> None:
    with pytest.raises(
        ArgumentError,
        match=r"is named \.txt \(glove\), \.vec \(word2vec\), \.bin \(binary\), perhaps followed by \.gz; got ",
    ):
        write(tmp_path / "a.csv", FOUND)
    with pytest.raises(UnknownNameError, match="unknown format of word vectors 'bin'"):
        write(tmp_path / "a.bin", FOUND, "bin")
    with pytest.raises(DataError, match="cannot be written: No such file or directory"):
        write(tmp_path / "nowhere" / "a.bin", FOUND)


def test_a_word_that_ends_in_a_number_of_a_vector_is_not_written() -> None:
    assert not any(is_writable(word, "glove") for word in ("a 0.5", "dog 1e-05", "dog nan"))
    assert is_writable("at 5", "glove")
