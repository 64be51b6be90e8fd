from collections.abc import Sequence
from pathlib import Path

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
    (own, actual), (own_wide, actual_wide) = result.scores.values()
    assert own == actual == own_wide
    assert own[1] == pytest.approx(100)
    assert actual_wide[1] == chrf(["ABCABC", "BCA", "CAB"], lines).score < 100
    assert result.report("other, int8", limit=0) == [
        "compared on 3 lines of a file",
        "greedy: 0 of 3 lines differ from attent's own",
        f"  attent: BLEU {own[0]:.2f}, chrF2 100.00; other, int8: BLEU {own[0]:.2f}, chrF2 100.00",
        "beam 5: 3 of 3 lines differ from attent's own",
        (
            f"  attent: BLEU {own[0]:.2f}, chrF2 100.00; other, int8: BLEU {actual_wide[0]:.2f}, chrF2 "
            f"{actual_wide[1]:.2f}"
        ),
    ]
    assert result.counts()["beam 5 BLEU and chrF2"] == [own, actual_wide]


def config(**corpus: object) -> RunConfig:
    return RunConfig(model=TransformerSettings(), corpus=corpus)


SIDES = (LETTERS, LETTERS)


def lines_of(config: RunConfig) -> Sequence[str]:
    return sample_of(config, SIDES).lines


def test_the_sample_is_what_the_run_was_validated_on(tmp_path: Path) -> None:
    settings = DatesSettings(locales=("en", "fr"), training_pairs=3, validation_pairs=8, held_out_combinations=0)
    sample = sample_of(config(dates=settings.model_dump(mode="json")), SIDES)
    assert list(zip(sample.lines, sample.references or (), strict=True)) == [
        (pair.source, pair.target) for pair in dates(settings).validation
    ]
    (tmp_path / "valid.tsv").write_text("ab\tc\n\nb\ta\n")
    (tmp_path / "valid.jsonl").write_text('{"source": "ca", "target": "b"}\n')
    assert lines_of(config(text={"train": "gone.tsv", "valid": str(tmp_path / "valid.jsonl")})) == ["ca"]
    (tmp_path / "valid.en").write_text("c\nab\n")
    (tmp_path / "valid.de").write_text("a\nb\n")
    assert lines_of(config(text={"train": "gone.tsv", "valid": str(tmp_path / "valid.tsv")})) == ["ab", "b"]
    files = {
        "train": "gone.tsv",
        "valid_source": str(tmp_path / "valid.en"),
        "valid_target": str(tmp_path / "valid.de"),
    }
    assert lines_of(config(text=files)) == ["c", "ab"]
    assert sample_of(config(text=files | {"maximum_length": 1}), SIDES).references == ["a"]
    assert sample_of(config(text=files), SIDES, longest=2).lines == ["c"]


def test_lines_and_references_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "valid.en").write_text("c\nab\n")
    (tmp_path / "valid.de").write_text("a\nb\n")
    assert sample_of(config(), SIDES, source=tmp_path / "valid.en") == Sample(
        ["c", "ab"], None, str(tmp_path / "valid.en")
    )
    assert sample_of(config(), SIDES, None, tmp_path / "valid.en", tmp_path / "valid.de").references == ["a", "b"]
    (tmp_path / "valid.de").write_text("a\n")
    with pytest.raises(ArgumentError, match="got 2 lines and 1 references"):
        sample_of(config(), SIDES, None, tmp_path / "valid.en", tmp_path / "valid.de")


def test_validation_is_split_off_again_unless_its_files_have_changed(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text(
        "\n".join(f"{item}{two}{three}\tb" for item in "abc" for two in "abc" for three in "abc")
    )
    text = {"train": str(tmp_path / "pairs.tsv")}
    corpus = pair_corpus(TextSettings(**text))
    digest = " ".join(map(str, encode_pairs(corpus, TextSettings(**text), *SIDES, length_multiple=1).digest()))
    run = RunConfig(model=TransformerSettings(), corpus={"text": text}, digests={"train": digest})
    sample = sample_of(run, SIDES)
    assert sample.lines == [pair.source for pair in corpus.validation]
    assert sample.origin == "the run's validation"
    (tmp_path / "pairs.tsv").write_text("ab\tc\nb\ta\n")
    sample = sample_of(run, SIDES)
    assert (
        "the run's validation pairs are not available (its files have changed, and the pairs split off now may be"
        in sample.origin
    )
    assert sample.references is None


@pytest.mark.parametrize(
    ("corpus", "reason"),
    [
        ({"text": {"train": "nowhere.tsv"}}, "(nowhere.tsv cannot be read: No such file or directory)"),
        ({"text": {"train": "-"}}, "(it was trained on standard input)"),
        ({}, "(config.json names none)"),
    ],
)
def test_where_there_is_no_text_tokens_are_made_up_and_that_is_said(corpus: dict[str, object], reason: str) -> None:
    sample = sample_of(config(**corpus), SIDES)
    assert len(sample.lines) == LINES
    assert set("".join(sample.lines)) == set("abc")
    assert sample.lines == lines_of(config())
    assert reason in sample.origin
    assert sample.origin.startswith("random tokens: the run")
