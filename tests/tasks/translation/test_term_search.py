from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from attent.errors import ArgumentError, DataError
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.search.search import Translation
from attent.search.settings import SearchSettings
from attent.tasks.translation.glossary import Glossary, missing
from attent.tasks.translation.term_search import TermSearch, check_terms, read_terms
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import CharTokenizer, Tokenizer, WordTokenizer

TEXTS = ["the dog runs", "a big dog and a dog", "the cat sits", "", "cat dog cat", "the big cat sees the dog run"]
GLOSSARY = Glossary((("dog", "12 3"), ("cat", "5"), ("big", "31")))


def translator(target: Tokenizer, seed: int = 3) -> Translator:
    torch.manual_seed(seed)
    source = CharTokenizer("abcdefghijklmnopqrstuvwxyz ")
    sizes = {"encoder_layers": 1, "decoder_layers": 2, "width": 16, "feed_forward": 17, "heads": 2}
    settings = TransformerSettings.model_validate(sizes | {"share_embeddings": "none"})
    return Translator(Transformer(settings, source.size, target.size), source, target)


def of_words() -> Translator:
    words = [f" {word}" for word in ("12", "3", "5", "31", "the", "of", "x", ".")]
    return translator(WordTokenizer([*words, "5", "x"]))


def of_characters() -> Translator:
    return translator(CharTokenizer("0123456 "), seed=5)


def search(own: Translator) -> TermSearch:
    return TermSearch(own, GLOSSARY)


@pytest.mark.parametrize("build", [of_words, of_characters])
@pytest.mark.parametrize(
    "settings", [SearchSettings(maximum_length=11), SearchSettings(beam=3, n_best=2, maximum_length=11)]
)
def test_every_term_comes_and_nothing_else_changes(build: Callable[[], Translator], settings: SearchSettings) -> None:
    own = build()
    results, plain = search(own)(TEXTS, settings), own.search(TEXTS, settings)
    for text, n_best, before in zip(TEXTS, results, plain, strict=True):
        targets = [term.target for term in GLOSSARY.find(text)]
        assert n_best and all(not missing(item.text, targets) for item in n_best)
        assert [item.score for item in n_best] == sorted((item.score for item in n_best), reverse=True)
        if not targets or (settings.n_best == 1 and not missing(before[0].text, targets)):
            assert n_best == before
    # neither neighbors nor their order count
    assert [search(own)([text], settings)[0] for text in TEXTS] == results
    assert search(own)(TEXTS[::-1], settings)[::-1] == results
    assert search(own)(TEXTS, settings, batch=2) == results
    # beginnings stay
    for prefix in ("the of", "") if build is of_words else ("31",):
        (best,) = search(own)(["the dog"], SearchSettings(maximum_length=9), prefixes=[prefix])[0]
        assert best.text.startswith(prefix) and not missing(best.text, ["12 3"])


def test_the_rest_of_the_translation_stays_where_that_is_more_probable() -> None:
    own, settings, kinds = of_words(), SearchSettings(maximum_length=8), set[bool]()

    def per_token(item: Translation) -> float:
        return item.log_probability / (len(item.tokens) + 1)

    for text in ("dog cat the", "the cat", "a cat sat", "two of a cat"):
        before = own.search(text, settings)[0].tokens
        for step in range(len(before) - 1):
            weights = torch.zeros(len(before), len(text))
            weights[step, text.index("cat") : text.index("cat") + 3] = 1
            by_step = TermSearch(own, Glossary((("cat", "31"),)), lambda sources, targets, weights=weights: [weights])
            (best,) = by_step([text], settings)[0]
            if best.tokens == before:
                continue
            beginning = [*before[:step], *own.target_tokenizer.encode("31")]
            prefixes = beginning, [*beginning, *before[step + 1 :]]
            searched, hypothesis = (own.search(text, settings, prefixes=tokens)[0] for tokens in prefixes)
            assert best == max(searched, hypothesis, key=per_token)
            kinds.add(best == hypothesis)
    assert kinds == {True, False}


def test_accents_are_composed_where_the_run_knows_them_so_alone() -> None:
    own = translator(CharTokenizer("012é "), seed=5)
    glossary = Glossary((("dog", "e\u03011"),))
    check_terms(glossary, own.target_tokenizer)
    (best,) = TermSearch(own, glossary)(["the dog"], SearchSettings(maximum_length=9))[0]
    assert "é1" in best.text and not missing(best.text, ["e\u03011"])


def test_terms_that_cannot_be_written_and_searches_that_cannot_be_done_are_named(tmp_path: Path) -> None:
    file, own = tmp_path / "terms.tsv", of_characters()
    file.write_text("dog\t12\ncat\t3x\n", encoding="utf-8")
    assert read_terms(file, CharTokenizer("123x")).entries == (("dog", "12"), ("cat", "3x"))
    with pytest.raises(ArgumentError, match="the run cannot write the term '3x': its vocabulary lacks a part of it"):
        read_terms(file, own.target_tokenizer)
    with pytest.raises(DataError, match="nowhere cannot be read: No such file"):
        read_terms(tmp_path / "nowhere", CharTokenizer("123"))
    with pytest.raises(ArgumentError, match="cannot be combined with sampling"):
        search(own)(["dog"], SearchSettings(sample=True))
