from __future__ import annotations

from pathlib import Path

import pytest

from attent.alignment.aligner import align, all_selectors, rank_selectors, tokenize_pair
from attent.alignment.error_rate import Agreement, agreement
from attent.alignment.forced_decoding import AttentionSelector
from attent.errors import ShapeError
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.tasks.dates import dates
from attent.tasks.dates.corpus import gold_links, tokenize_dates
from attent.tasks.overrides import override
from attent.tasks.recipe import follow
from attent.tasks.settings import read
from attent.tasks.translation.translator import load
from attent.text.text import Gold
from attent.text.tokenizer import CharTokenizer

ROOT = Path(__file__).parents[2]
TOKENIZER = CharTokenizer("abcdefgh ")
TEXTS = [("a b c d", "e f g"), ("ab cd", "ef gh"), ("", "a"), ("h g f e d c b", "a b c d e f g")]


def make_model() -> Transformer:
    settings = TransformerSettings(encoder_layers=1, decoder_layers=2, width=18, feed_forward=17, heads=3)
    return Transformer(settings, TOKENIZER.size, TOKENIZER.size).eval()


def test_everything_that_can_be_looked_at() -> None:
    assert len(all_selectors([3, 3])) == 2 * (3 + 1) * 2
    # of a single head there is no mean beside it
    assert all_selectors([1]) == [AttentionSelector(0, 0, "produced"), AttentionSelector(0, 0, "read")]


@pytest.mark.parametrize(
    "selector",
    [AttentionSelector(0, 2, "read"), AttentionSelector(1, None, "produced"), AttentionSelector(1, 1, "produced")],
)
def test_whose_links_are_the_gold_ones_comes_first(selector: AttentionSelector) -> None:
    model, pairs = make_model(), [tokenize_pair(*texts, (TOKENIZER, TOKENIZER)) for texts in TEXTS]
    gold = [Gold.of(links) for links in align(model, pairs, selector)]
    ranking = rank_selectors(model, pairs, gold)
    assert len(ranking) == 16
    best_selector, result = ranking[0]
    assert (best_selector, result.error_rate) == (selector, 0) and ranking[1][1].error_rate > 0
    assert [entry.error_rate for _, entry in ranking] == sorted(entry.error_rate for _, entry in ranking)


def test_each_is_judged_as_if_it_alone_had_been_asked_for() -> None:
    model, pairs = make_model(), [tokenize_pair(*texts, (TOKENIZER, TOKENIZER)) for texts in TEXTS]
    gold = [Gold.of([(0, 0)], [(1, 1)]), Gold.of([(1, 1)]), Gold.of([(0, 0)]), Gold.of([(6, 0), (5, 1)])]
    for selector, actual in rank_selectors(model, pairs, gold, threshold=0.2):
        links = align(model, pairs, selector, threshold=0.2)
        assert actual == sum(map(agreement, links, gold), Agreement())
        assert actual.sure == 5
    with pytest.raises(ShapeError, match="each of 4 pairs needs gold links, got 1"):
        rank_selectors(model, pairs, [Gold.of([])])


@pytest.mark.slow
def test_bahdanaus_network_looks_where_dates_come_from(tmp_path: Path) -> None:
    # rows about the token produced look at the known links, and those about the token read in do not
    tables = {"training.updates": 300, "training.minutes": 60, "training.threads": 1}
    changes = [f"{name}={value}" for name, value in tables.items()]
    settings = override(read(ROOT / "configs" / "dates-rnn.toml"), changes)
    follow(settings, tmp_path / "run")
    run = load(tmp_path / "run")
    for pairs in dates(settings.dates).held_out.values():
        tokenizers = run.source_tokenizer, run.target_tokenizer
        tokenized = [tokenize_dates(pair.source, pair.target, tokenizers) for pair in pairs]
        ranking = rank_selectors(run.model, tokenized, list(map(gold_links, pairs)))
        (selector, best), (second_selector, worse) = ranking
        assert (selector.about, second_selector.about) == ("produced", "read")
        assert best.error_rate <= 0.10
        assert worse.error_rate >= 0.30
