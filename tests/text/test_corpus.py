import gzip
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from attent.errors import ArgumentError, DataError
from attent.text.corpus import encode_lines, encode_pairs, learn_tokenizers, line_corpus, open_lines, pair_corpus
from attent.text.disk_texts import DiskBitext
from attent.text.settings import LinesSettings, TextSettings
from attent.text.text import Pair
from attent.text.tokenizer import CharTokenizer
from attent.text.tokenizers import learn


def pairs(path: Path, count: int, first: int = 0) -> str:
    numbers = range(first, first + count)
    path.write_text("".join(f"the dog {number}\tder Hund {number}\n" for number in numbers), encoding="utf-8")
    return str(path)


def test_validation_has_its_own_file_and_shares_nothing(tmp_path: Path) -> None:
    files = pairs(tmp_path / "a.tsv", 101), pairs(tmp_path / "b.tsv", 7, first=98)
    corpus = pair_corpus(TextSettings(train=files[0], valid=files[1]))
    assert (len(corpus.train), len(corpus.validation)) == (98, 7)
    assert corpus.train[3] == Pair("the dog 3", "der Hund 3")
    assert [report.summary() for report in corpus.reports] == [
        [f"{tmp_path / 'a.tsv'}: 101 lines read, 98 kept", "  3 dropped: also in validation (lines 99, 100, 101)"],
        [f"{tmp_path / 'b.tsv'}: 7 lines read, 7 kept"],
    ]


def test_what_is_not_trained_with_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("a\tb\tc\n" * 7, encoding="utf-8")
    message = r"no line contains a pair; .* 7 dropped: more than one tab \(lines 1, 2, 3, …\)"
    with pytest.raises(DataError, match=message):
        pair_corpus(TextSettings(train=str(path)))
    settings = TextSettings(train=pairs(tmp_path / "a.tsv", 53), vocabulary=300, dropout=0.2)
    corpus = pair_corpus(settings)
    with pytest.raises(ArgumentError, match=r"text\.dropout must be 0"):
        encode_pairs(corpus, settings, *learn_tokenizers(corpus, settings))


def test_each_side_has_its_tokenizer(tmp_path: Path) -> None:
    settings = TextSettings(
        train=pairs(tmp_path / "a.tsv", 53), tokenizer="char", target_tokenizer="bpe", target_vocabulary=300
    )
    corpus = pair_corpus(settings)
    source, target = learn_tokenizers(corpus, settings)
    assert isinstance(source, CharTokenizer)
    assert "d" in source.entries
    assert "H" not in source.entries
    assert target.size == 300
    settings = TextSettings(train=settings.train, tokenizer="word", shared=True)
    source, target = learn_tokenizers(corpus, settings)
    assert source is target
    assert {1} != {*source.encode("dog Hund")}


def test_pairs_that_are_too_long_are_left_out_and_reported(tmp_path: Path) -> None:
    settings = TextSettings(train=pairs(tmp_path / "a.tsv", 53), tokenizer="char", maximum_length=10)
    corpus = pair_corpus(settings)
    data = encode_pairs(corpus, settings, *learn_tokenizers(corpus, settings))
    assert isinstance(data, DiskBitext)
    short = [pair for pair in corpus.train if len(pair.target) <= 10]
    assert len(data) == len(short) < 11
    assert corpus.reports[0].dropped["longer than the maximum length"].count == len(corpus.train) - len(short)


LARGE = """
import itertools, sys
from attent.text.batches import BatchSize
from attent.text.corpus import encode_pairs, learn_tokenizers, pair_corpus
from attent.text.settings import TextSettings

def kibibytes(name):
    # ru_maxrss would begin with what the parent process had
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))

settings = TextSettings(train=sys.argv[1], vocabulary=2000)
before = kibibytes("VmRSS")
corpus = pair_corpus(settings, sys.argv[2])
data = encode_pairs(corpus, settings, *learn_tokenizers(corpus, settings))
tokens = sum(batch.tokens for batch in itertools.islice(data.stream(BatchSize(tokens=4096), 1), 500))
print(len(data), tokens, kibibytes("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from Linux' /proc")
def test_many_lines_take_little_memory(tmp_path: Path) -> None:
    with (tmp_path / "a.tsv").open("w", encoding="utf-8") as file:
        for number in range(600_000):
            source = f"a man {number % 977} walks {number % 1009} dogs in the street {number}"
            file.write(f"{source}\tein Mann {number} führt Hunde {number % 991} aus\n")
    command = [sys.executable, "-c", LARGE, str(tmp_path / "a.tsv"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)})
    # pytest keeps its folders for a while
    (tmp_path / "a.tsv").unlink()
    count, tokens, kibibytes = map(int, done.stdout.split())
    assert count == 599_000
    assert tokens > 1_500_000
    # the texts alone are 50 MB as bytes, and more than 150 MB as strings
    assert kibibytes < 240 * 2**10


LINES = [f"a {'b ' * number}c" for number in range(1, 41)]


def written(path: Path, lines: list[str]) -> str:
    with gzip.open(path, "wt", encoding="utf-8") if path.suffix == ".gz" else path.open("w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize("name", ["train.txt", "train.txt.gz"])
def test_lines_are_read_split_encoded_and_lent(tmp_path: Path, name: str) -> None:
    settings = LinesSettings(train=written(tmp_path / name, [*LINES, "", "  "]), maximum_length=31)
    corpus = line_corpus(settings)
    assert (len(corpus.train), len(corpus.validation)) == (38, 2)
    tokenizer = learn(settings.tokenizer, corpus.train, settings.size)
    data = encode_lines(corpus, tokenizer, 31)
    assert data.lengths.tolist() == [len(tokenizer.encode(line)) for line in corpus.train if len(line.split()) <= 31]
    message = " ".join(line for report in corpus.reports for line in report.summary())
    assert "42 lines read" in message
    assert "2 dropped: empty line (lines 41, 42)" in message
    assert "dropped: longer than the maximum length" in message
    second = open_lines(corpus.folder.path)
    rows = np.arange(len(data))
    assert (second.pad(rows) == data.pad(rows)).all()


def test_too_little_text_is_said(tmp_path: Path) -> None:
    few = {"no line contains text": ["", " "], "at least 2 lines are needed to train and validate, got 1": ["one"]}
    for message, lines in few.items():
        with pytest.raises(DataError, match=message):
            line_corpus(LinesSettings(train=written(tmp_path / "few.txt", lines)))
    settings = LinesSettings(train=written(tmp_path / "train.txt", LINES), maximum_length=2)
    corpus = line_corpus(settings)
    with pytest.raises(DataError, match="all 38 lines are longer than the maximum length of 2 tokens"):
        encode_lines(corpus, learn(settings.tokenizer, corpus.train, settings.size), settings.maximum_length)


def test_validation_of_its_own_is_not_trained_on(tmp_path: Path) -> None:
    files = written(tmp_path / "train.txt", LINES), written(tmp_path / "valid.txt", LINES[:3])
    corpus = line_corpus(LinesSettings(train=files[0], valid=files[1]))
    assert list(corpus.validation) == LINES[:3]
    assert len(corpus.train) == 37
    assert "3 dropped: also in validation (lines 1, 2, 3)" in " ".join(corpus.reports[0].summary())
    files = pairs(tmp_path / "new.tsv", 40), pairs(tmp_path / "old.tsv", 40, first=100)
    corpus = pair_corpus(TextSettings(train=files[0], replay=files[1]))
    assert all(int(pair.source.split()[-1]) < 100 for pair in corpus.validation)
    assert not {*corpus.train} & {*corpus.validation}


@pytest.mark.parametrize(
    ("train", "replay", "share", "times"), [(10, 60, 0.5, (6, 1)), (60, 5, 0.5, (1, 15)), (20, 20, 0.75, (1, 3))]
)
def test_replayed_pairs_have_their_share(
    tmp_path: Path, train: int, replay: int, share: float, times: tuple[int, int]
) -> None:
    files = (
        pairs(tmp_path / "new.tsv", train),
        pairs(tmp_path / "valid.tsv", 3, first=998),
        pairs(tmp_path / "old.tsv", replay, first=1000),
    )
    corpus = pair_corpus(TextSettings(train=files[0], valid=files[1], replay=files[2], replay_share=share))
    numbers = Counter(int(pair.source.split()[-1]) for pair in corpus.train)
    # pair 1,000 is in validation, so that it is not learnt
    assert numbers == dict.fromkeys(range(train), times[0]) | dict.fromkeys(range(1001, 1000 + replay), times[1])
    assert corpus.replay.summary()[0] == f"{files[2]}: {replay} lines read, {replay - 1} kept"
    assert len(corpus.validation) == 3
