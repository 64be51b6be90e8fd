from collections.abc import Sequence
from pathlib import Path

from attent.data.dates import DatesSettings, dates
from attent.data.tokenizer import CharTokenizer
from attent.decoding.search import Translation
from attent.decoding.settings import SearchSettings
from attent.decoding.translator import Engine
from attent.export.comparison import LINES, Comparison, Difference, compare, sample_of
from attent.models.settings import TransformerSettings
from attent.runs.folder import RunConfig

LETTERS = CharTokenizer("abc")


class Echo(Engine):
    """Says what it reads, in capitals where its beam is wide."""

    def __init__(self, capitals: int) -> None:
        super().__init__(tokenizer := CharTokenizer("abcB"), tokenizer)
        self.capitals = capitals

    def search_encoded(
        self, sources: Sequence[Sequence[int]], prefixes: object, settings: SearchSettings, batch: object
    ) -> list[list[Translation]]:
        texts = map(self.source_tokenizer.decode, sources)
        return [[Translation((), 0.0, 1.0, text.upper() if settings.beam >= self.capitals else text)] for text in texts]


def test_every_line_that_differs_is_counted_and_the_first_are_shown() -> None:
    found = compare(Echo(9), Echo(2), ["a", "B", "c", "a", "b"])
    assert found.counts() == {"lines": 5, "greedy": 0, "beam 5": 4}
    assert found.differences["beam 5"][1] == Difference("c", "c", "C")
    assert found.report("other", limit=1) == [
        "greedy: 0 of 5 lines differ from attent's own",
        "beam 5: 4 of 5 lines differ from attent's own",
        "  a",
        "    attent: a",
        "    other: A",
    ]
    assert Comparison(0, {}).report("other") == []


def config(**corpus: object) -> RunConfig:
    return RunConfig(model=TransformerSettings(), corpus=corpus)


def test_the_sample_is_what_the_run_was_validated_on(tmp_path: Path) -> None:
    settings = DatesSettings(locales=("en", "fr"), training_pairs=3, validation_pairs=8, held_out_combinations=0)
    sources = [pair.source for pair in dates(settings).validation]
    assert sample_of(config(dates=settings.model_dump(mode="json")), LETTERS) == sources
    (tmp_path / "valid.tsv").write_text("ab\tc\n\nb\ta\n")
    (tmp_path / "valid.jsonl").write_text('{"source": "ca", "target": "b"}\n')
    assert sample_of(config(text={"valid": str(tmp_path / "valid.jsonl")}), LETTERS) == ["ca"]
    (tmp_path / "valid.en").write_text("c\nab\n")
    assert sample_of(config(text={"valid": str(tmp_path / "valid.tsv")}), LETTERS) == ["ab", "b"]
    assert sample_of(config(text={"valid_source": str(tmp_path / "valid.en")}), LETTERS) == ["c", "ab"]
    assert sample_of(config(), LETTERS, tmp_path / "valid.en") == ["c", "ab"]


def test_where_that_is_gone_lines_are_made_up() -> None:
    found = sample_of(config(text={"valid_source": "nowhere.txt"}), LETTERS)
    assert len(found) == LINES
    assert set("".join(found)) == set("abc")
    assert found == sample_of(config(), LETTERS)
