from collections.abc import Iterable

import torch

from attent.alignment.aligner import align, tokenize_pair
from attent.alignment.forced_decoding import AttentionSelector
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.tasks.translation.alignment import Alignment, copy_unknown, token_texts
from attent.tasks.translation.pair_linker import random_halves
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import SPECIALS, UNK, CharTokenizer

CHARACTERS = CharTokenizer(" ab")
LINKS = [(1, 0), (0, 1), (1, 2)]


class Words(CharTokenizer):
    """Words with the space before them, which the first of a text goes without; the last one is a sign."""

    def decode(self, ids: Iterable[int]) -> str:
        return "".join((" cat", " sat", ".")[token - SPECIALS] for token in ids if token >= SPECIALS).removeprefix(" ")


WORDS = Words("abc")


def test_links_are_those_of_the_pair() -> None:
    torch.manual_seed(2)
    source, target = CharTokenizer("abcde "), CharTokenizer("0123 ")
    sizes = {"encoder_layers": 1, "decoder_layers": 2, "width": 16, "feed_forward": 17, "heads": 2}
    settings = TransformerSettings.model_validate(sizes | {"share_embeddings": "none"})
    translator = Translator(Transformer(settings, source.size, target.size), source, target)
    texts = ["ab cd e", "e", "abc de"]
    translations = [best[0] for best in translator.search(texts)]
    for selector in (None, AttentionSelector(0, 1, "read")):
        both = zip(texts, translations, strict=True)
        pairs = [tokenize_pair(text, item.text, (source, target)) for text, item in both]
        links = [item.links for item in Alignment.of(translator, translations, selector=selector)]
        assert links == align(translator.model, pairs, selector)


def test_what_was_looked_at_takes_its_place() -> None:
    assert token_texts([5, UNK, 4, 6, 5], CHARACTERS) == ["a", "", " ", "b", "a"]
    assert token_texts([5, UNK, 4, 6], WORDS) == [" sat", "", " cat", "."]
    assert copy_unknown([5, UNK, 6], CHARACTERS, LINKS, ["x", "y"]) == ("axb", ["a", "x", "b"])
    assert copy_unknown([UNK, 4, UNK], CHARACTERS, LINKS, [" ", "y"]) == ("y y", ["y", " ", "y"])
    # words stay apart and signs do not
    assert copy_unknown([4, UNK, 6], WORDS, LINKS, [" Ω", " Ψ"]) == ("cat Ω.", [" cat", " Ω", "."])
    assert copy_unknown([UNK, UNK, 5], WORDS, LINKS, ["▁Ω", "▁Ψ"]) == ("Ψ Ω sat", [" Ψ", " Ω", " sat"])
    assert copy_unknown([5, 4, 6], CHARACTERS, LINKS, ["x", "y"])[0] == "a b"
    assert copy_unknown([UNK, 5], CHARACTERS, [], [])[0] == "a"


def test_halves_have_no_pair_in_common() -> None:
    first, second = random_halves(101)
    assert sorted(first + second) == list(range(101))
    assert len(first) == 50
    # neither the first half nor every other one
    assert 15 < sum(row < 50 for row in first) < 35
    assert 15 < sum(row % 2 for row in first) < 35
