"""Documents through a run: tags follow its attention."""

from __future__ import annotations

import re

import pytest
import torch

from attent.documents.translate import translate_markup
from attent.errors import DataError, UnknownNameError
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import CharTokenizer


@pytest.fixture
def translator() -> Translator:
    torch.manual_seed(3)
    source, target = CharTokenizer("abcdefghijklmnopqrstuvwxyz .ABC"), CharTokenizer("0123 ")
    small = {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "width": 16,
        "feed_forward": 17,
        "heads": 2,
        "share_embeddings": "none",
    }
    return Translator(Transformer(TransformerSettings.model_validate(small), source.size, target.size), source, target)


def test_every_tag_comes_back_once(translator: Translator) -> None:
    document = "<p>A <b>big <i>dog</i></b> runs. <br>Big <a>cats</a> sit.</p>\n\n<p>c</p>"
    for language in ("en", None):
        (translation,) = translate_markup(translator, [document], "html", language=language)
        assert sorted(re.findall("<[^>]*>", translation)) == sorted(re.findall("<[^>]*>", document))
        assert translation.startswith("<p>") and "</p>\n\n<p>" in translation


def test_text_without_tags_is_translated_as_ever(translator: Translator) -> None:
    texts = ["a big dog", "cats"]
    assert translate_markup(translator, texts, "markdown") == translator.translate(texts)
    assert translate_markup(translator, ["", "..."], "html") == ["", "..."]


def test_an_unknown_markup_is_said(translator: Translator) -> None:
    with pytest.raises(UnknownNameError, match="unknown markup 'xml'"):
        translate_markup(translator, ["a"], "xml")


def test_what_is_refused_stays_as_it_was(translator: Translator) -> None:
    refused: list[tuple[int, str, str]] = []
    translator.input_check = lambda text: "no b" if "b" not in text else None
    documents = ["<p>a <i>cat</i></p><p>a <b>big</b> dog</p>", "<![foo bar]>"]
    first, second = translate_markup(translator, documents, "html", refuse=lambda *refusal: refused.append(refusal))
    assert first.startswith("<p>a <i>cat</i></p><p>") and first.count("<b>") == 1 and "dog" not in first
    assert (second, [number for number, _, _ in refused]) == (documents[1], [1, 0])
    assert refused[1] == (0, "a cat", "no b")
    with pytest.raises(DataError):
        translate_markup(translator, documents[1:], "html")
