"""Documents through a run: tags follow its attention."""

from __future__ import annotations

import re

import pytest
import torch

from attent import documents
from attent.documents.html import parse_html
from attent.documents.markdown import parse_markdown
from attent.documents.pipeline import translate_documents
from attent.documents.translation import by_run
from attent.errors import ArgumentError, DataError, UnknownNameError
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
        (translation,) = translate_documents([parse_html(document)], language, by_run(translator))
        assert sorted(re.findall("<[^>]*>", translation)) == sorted(re.findall("<[^>]*>", document))
        assert translation.startswith("<p>") and "</p>\n\n<p>" in translation


def test_text_without_tags_is_translated_as_ever(translator: Translator) -> None:
    texts = ["a big dog", "cats"]
    assert translate_documents([*map(parse_markdown, texts)], None, by_run(translator)) == translator.translate(texts)
    assert translate_documents([*map(parse_html, ["", "..."])], None, by_run(translator)) == ["", "..."]


def test_an_unknown_format_is_said(translator: Translator) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown document '\.xml'"):
        documents.translate(b"a", translator, ending=".xml")
    with pytest.raises(ArgumentError, match=r"ending='\.docx'"):
        documents.translate(b"a", translator)


def test_what_is_refused_stays_as_it_was(translator: Translator) -> None:
    refused: list[tuple[int, str, str]] = []
    translator.input_check = lambda text: "no b" if "b" not in text else None
    document = parse_html("<p>a <i>cat</i></p><p>a <b>big</b> b dog</p>")
    (first,) = translate_documents(
        [document], None, by_run(translator), refuse=lambda *refusal: refused.append(refusal)
    )
    assert first.startswith("<p>a <i>cat</i></p><p>") and first.count("<b>") == 1 and "dog" not in first
    assert refused == [(0, "a cat", "no b")]
    with pytest.raises(DataError):
        documents.translate(b"<![foo bar]>", translator, ending=".html")
