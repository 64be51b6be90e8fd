from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from attent.errors import ArgumentError
from attent.formats.exporting import LINES, Comparison, Difference, Sample, compare, sample_of
from attent.models.settings import TransformerSettings
from attent.runs.folder import RunConfig
from attent.search.search import Hypothesis
from attent.search.settings import SearchSettings
from attent.tasks.dates import DatesSettings, dates
from attent.tasks.translation.engine import Engine
from attent.tasks.translation.evaluation import chrf
from attent.text.corpus import encode_pairs, pair_corpus
from attent.text.settings import TextSettings
from attent.text.tokenizer import CharTokenizer

LETTERS = CharTokenizer("abc")


class Echo(Engine):
    """Says what it reads, in capitals where its beam is wide."""

    def __init__(self, capitals: int) -> None:
        super().__init__(CharTokenizer("abcB"), CharTokenizer("abcABC"))
        self.capitals = capitals

    def search_encoded(
        self, sources: Sequence[Sequence[int]], prefixes: object, settings: SearchSettings, batch: object
    ) -> list[list[Hypothesis]]:
        texts = map(self.source_tokenizer.decode, sources)
        written = (text.upper() if settings.beam >= self.capitals else text for text in texts)
        return [[Hypothesis(tuple(self.target_tokenizer.encode(text)), 0.0, 1.0)] for text in written]


def test_every_line_that_differs_is_counted_and_the_first_are_shown() -> None:
    comparison = compare(Echo(9), Echo(2), Sample(["a", "B", "c", "a", "b"], None, ""))
    assert comparison.counts() == {"lines": 5, "greedy": 0, "beam 5": 4}
    assert comparison.differences["beam 5"][1] == Difference("c", "c", "C")
    assert comparison.report("other", limit=1) == [
        "greedy: 0 of 5 lines differ from attent's own",
        "beam 5: 4 of 5 lines differ from attent's own",
        "  a",
        "    attent: a",
        "    other: A",
    ]
    assert Comparison(0, {}).report("other") == []


def test_engines_are_judged_by_references() -> None:
    lines = ["abcabc", "bca", "cab"]
    result = compare(Echo(9), Echo(2), Sample(lines, lines, "a file"))
    (own, actual), (own_wide, wide) = result.scores.values()
    assert own == actual == own_wide
    assert own[1] == pytest.approx(100)
    assert wide[1] == chrf(["ABCABC", "BCA", "CAB"], lines).score < 100
    assert result.report("other, int8", limit=0)[3:] == [
        "beam 5: 3 of 3 lines differ from attent's own",
        f"  attent: BLEU {own[0]:.2f}, chrF2 100.00; other, int8: BLEU {wide[0]:.2f}, chrF2 {wide[1]:.2f}",
    ]
    assert result.counts()["beam 5 BLEU and chrF2"] == [own, wide]


def sample(corpus: dict[str, Any], **arguments: Any) -> Sample:
    return sample_of(RunConfig(model=TransformerSettings(), corpus=corpus), (LETTERS, LETTERS), **arguments)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Validation lines in two files, as a run's settings name them."""
    (tmp_path / "valid.en").write_text("c\nab\n")
    (tmp_path / "valid.de").write_text("a\nb\n")
    return {"valid_source": str(tmp_path / "valid.en"), "valid_target": str(tmp_path / "valid.de")}


def test_the_sample_is_what_the_run_was_validated_on(tmp_path: Path, files: dict[str, str]) -> None:
    settings = DatesSettings(locales=("en",), training_pairs=3, validation_pairs=8, held_out_combinations=0)
    actual = sample({"dates": settings.model_dump(mode="json")})
    assert list(zip(actual.lines, actual.references or (), strict=True)) == [
        (pair.source, pair.target) for pair in dates(settings).validation
    ]
    for name, content, lines in (
        ("valid.tsv", "ab\tc\n\nb\ta\n", ["ab", "b"]),
        ("valid.jsonl", '{"source": "ca", "target": "b"}\n', ["ca"]),
    ):
        (tmp_path / name).write_text(content)
        assert sample({"text": {"train": "gone.tsv", "valid": str(tmp_path / name)}}).lines == lines
    text = {"train": "gone.tsv"} | files
    assert sample({"text": text}).lines == ["c", "ab"]
    assert sample({"text": text | {"maximum_length": 1}}).references == ["a"]
    assert sample({"text": text}, longest=2).lines == ["c"]


def test_lines_and_references_may_be_named(files: dict[str, str]) -> None:
    source, target = map(Path, files.values())
    assert sample({}, source=source) == Sample(["c", "ab"], None, str(source))
    assert sample({}, source=source, target=target).references == ["a", "b"]
    target.write_text("a\n")
    with pytest.raises(ArgumentError, match="got 2 lines and 1 references"):
        sample({}, source=source, target=target)


def test_validation_is_split_off_again_unless_its_files_have_changed(tmp_path: Path) -> None:
    (file := tmp_path / "pairs.tsv").write_text("\n".join(f"{''.join(word)}\tb" for word in product("abc", repeat=3)))
    text = TextSettings(train=str(file))
    corpus = pair_corpus(text)
    digest = " ".join(map(str, encode_pairs(corpus, text, LETTERS, LETTERS, length_multiple=1).digest()))
    run = RunConfig(model=TransformerSettings(), corpus={"text": {"train": str(file)}}, digests={"train": digest})
    actual = sample_of(run, (LETTERS, LETTERS))
    assert actual.lines == [pair.source for pair in corpus.validation]
    assert actual.origin == "the run's validation"
    file.write_text("ab\tc\nb\ta\n")
    actual = sample_of(run, (LETTERS, LETTERS))
    assert "validation pairs are not available (its files have changed, and the pairs split off" in actual.origin
    assert actual.references is None


@pytest.mark.parametrize(
    ("corpus", "reason"),
    [
        ({"text": {"train": "nowhere.tsv"}}, "(nowhere.tsv cannot be read: No such file or directory)"),
        ({"text": {"train": "-"}}, "(it was trained on standard input)"),
        ({}, "(config.json names none)"),
    ],
)
def test_where_there_is_no_text_tokens_are_made_up_and_that_is_said(corpus: dict[str, object], reason: str) -> None:
    actual = sample(corpus)
    assert len(actual.lines) == LINES
    assert set("".join(actual.lines)) == set("abc")
    assert actual.lines == sample({}).lines
    assert actual.origin.startswith("random tokens: the run") and reason in actual.origin
