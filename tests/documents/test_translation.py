"""Documents through a run: tags follow its attention."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import torch

from attent import documents
from attent.documents.html import parse_html
from attent.documents.markdown import parse_markdown
from attent.documents.pipeline import by_run, translate_documents
from attent.errors import ArgumentError, DataError, UnknownNameError
from attent.models.settings import TransformerSettings
from attent.models.transformer import Transformer
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import CharTokenizer

RUN = Path(__file__).parent.parent / "frozen" / "runs" / "pairs"


@pytest.fixture
def translator() -> Translator:
    torch.manual_seed(3)
    source, target = CharTokenizer("abcdefghijklmnopqrstuvwxyz .ABC"), CharTokenizer("0123 ")
    small = {"encoder_layers": 1, "decoder_layers": 1, "width": 16, "feed_forward": 17, "heads": 2}
    settings = TransformerSettings.model_validate(small | {"share_embeddings": "none"})
    return Translator(Transformer(settings, source.size, target.size), source, target)


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


def test_a_file_is_read_within_bounds(translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "letter.md"
    file.write_text("abc", encoding="utf-8")
    assert documents.translate(file, translator) == documents.translate(b"abc", translator, ending=".md")
    monkeypatch.setattr(documents, "MAX_FILE", 2)
    with pytest.raises(DataError, match=r"letter\.md: it has more than 2 bytes$"):
        documents.translate(file, translator)
    if sys.platform != "win32":
        file.unlink()
        os.mkfifo(file)
        with pytest.raises(DataError, match=r"letter\.md: it is not a regular file$"):
            documents.translate(file, translator)


def test_a_sentence_that_comes_again_is_read_once(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    read, texts = translator.read, list[str]()
    monkeypatch.setattr(translator, "read", lambda text: texts.append(text) or read(text))
    translate_documents([parse_html("<p>abc</p><p>abc</p><p>cab</p>")], None, by_run(translator))
    assert [text for text in texts if isinstance(text, str)] == ["abc", "cab"]
