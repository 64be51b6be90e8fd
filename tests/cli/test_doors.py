"""The command, Python and the server translate a text alike, and encode it once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from starlette.testclient import TestClient

from attent.documents import translate
from attent.server.catalog import RunCatalog
from attent.server.server import TranslationServer
from attent.server.settings import ServerSettings
from attent.tasks.translation.alignment import Alignment
from attent.tasks.translation.glossary import read_glossary
from attent.tasks.translation.term_search import TermSearch
from attent.tasks.translation.translator import Translator, load
from attent.text.tokenizer import VocabularyTokenizer
from attent.text.tokenizers import SubwordTokenizer

RUNS = Path(__file__).parents[1] / "frozen" / "runs"
# An RNN of words, which has to be watched, and a Transformer of subwords.
NAMES = ("bahdanau", "pairs")
TERM = ("dog", "chat")
# Other spellings of known words, signs of other scripts, unknown words, and spaces of all kinds.
NASTY = (
    "the dog sees a cat",
    "ｔｈｅ dog sees a ｃat",
    "The  dog\u00a0sees\u202fa cat",
    "the do\u0301g sees a cat",
    "THE DOG sees the hen",
    "the \ufb01 dog sees the cat\u2026",
    "\U0001f600 the mouse \u4f60\u597d likes the horse",
    "the dog\u200b sees",
    "Zebra, dog",
    "the dog <b> & cat",
)
DOCUMENT = "<p>Ｔｈｅ \ufb01 <b>dog\u0301 sees</b> a <i>ｃat</i></p>"


class Doors:
    """A run behind the command, Python, and the server."""

    def __init__(self, attent: Callable[..., list[str]], run: Path, client: TestClient, terms: Path) -> None:
        self.attent, self.run, self.client, self.terms = attent, run, client, terms
        self.translator: Translator = load(run)

    def ask(self, text: str, **values: object) -> str:
        values = {"q": text, "source": "en", "target": "fr", **values}
        return self.client.post("/translate", json=values).json()["translatedText"]


@pytest.fixture(params=NAMES)
def doors(request: pytest.FixtureRequest, attent: Callable, tmp_path: Path) -> Iterator[Doors]:
    run, terms = RUNS / request.param, tmp_path / "terms.tsv"
    terms.write_text("\t".join(TERM) + "\n", encoding="utf-8")
    server = TranslationServer(RunCatalog([run], [("en", "fr")]), ServerSettings(window=0.0), lambda line: None)
    try:
        yield Doors(lambda *options: attent("translate", run, *options).out, run, TestClient(server.app), terms)
    finally:
        server.close()


def test_a_text_is_translated_alike_with_terms_and_tags_too(doors: Doors, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("".join(f"{text}\n" for text in NASTY), encoding="utf-8")
    expected = doors.attent(tmp_path / "lines.txt")
    assert doors.translator.translate(NASTY) == expected
    assert [doors.ask(text) for text in NASTY] == expected

    expected = doors.attent(tmp_path / "lines.txt", "--glossary", doors.terms)
    search = TermSearch(doors.translator, read_glossary(doors.terms))
    assert [n_best[0].text for n_best in search(NASTY)] == expected
    assert [doors.ask(text, glossary=[TERM]) for text in NASTY] == expected
    assert sum("chat" in text for text in expected) > 5

    (tmp_path / "page.html").write_text(DOCUMENT, encoding="utf-8")
    doors.attent(tmp_path / "page.html", "--out", tmp_path / "out.html")
    expected = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert translate(DOCUMENT.encode(), doors.translator, ending=".html").decode() == expected
    assert doors.ask(DOCUMENT, format="html") == expected
    assert all(expected.count(tag) == 1 for tag in ("<p>", "<b>", "</b>", "<i>", "</i>", "</p>"))


SENTENCE = "the small dog sees a cat"


def by_command(*options: object) -> Callable[[Doors], object]:
    return lambda doors: doors.attent(SENTENCE, *options)


def by_document(doors: Doors) -> object:
    file = doors.terms.with_name("sentence.html")
    file.write_text(SENTENCE, encoding="utf-8")
    return doors.attent(file, "--out", file.with_name("out.html"))


def by_server(**values: object) -> Callable[[Doors], object]:
    return lambda doors: doors.ask(SENTENCE, **values)


WAYS: dict[str, Callable[[Doors], object]] = {
    "command": by_command(),
    "command, JSON": by_command("--format", "jsonl", "--beam", 2, "--n-best", 2),
    "command, alignments": by_command("--alignments", "--replace-unknown"),
    "command, document": by_document,
    "command, glossary": lambda doors: doors.attent(SENTENCE, "--glossary", doors.terms),
    "Python": lambda doors: doors.translator.translate(SENTENCE),
    "Python, alignments": lambda doors: Alignment.of(doors.translator, doors.translator.search(SENTENCE)),
    "Python, glossary": lambda doors: TermSearch(doors.translator, read_glossary(doors.terms))([SENTENCE]),
    "Python, document": lambda doors: translate(SENTENCE.encode(), doors.translator, ending=".txt"),
    "Python, maps": lambda doors: doors.translator.map(SENTENCE),
    "server": by_server(),
    "server, alignments": by_server(alignment=True),
    "server, markup": by_server(format="html"),
    "server, glossary": by_server(glossary=[TERM]),
    "server, all": by_server(glossary=[TERM], format="html", alternatives=2),
    "server, events": lambda doors: doors.client.post(
        "/translate", json={"q": SENTENCE, "source": "en", "target": "fr", "stream": True, "alignment": True}
    ),
}


def test_a_sentence_is_encoded_once(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counter[str]()
    for kind in (VocabularyTokenizer, SubwordTokenizer):
        for name in ("encode", "pieces"):
            method = getattr(kind, name)

            def counted(self: object, text: str, *ids: Sequence[int], method: Callable = method) -> object:
                # with ids, all of which are known here, a text is not encoded for its pieces
                counts[text] += not ids
                return method(self, text, *ids)

            monkeypatch.setattr(kind, name, counted)
    for name, way in WAYS.items():
        counts.clear()
        way(doors)
        assert counts[SENTENCE] == 1, name
