"""The server's answers: LibreTranslate's endpoints, documents, and what is refused with which status."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import attent
import attent.documents

for library in ("starlette", "py3langid"):
    pytest.importorskip(library, reason="the extra serve is not installed")

# The runs translate English to French; which languages a server calls them is its user's choice.
RUNS = {"pairs": ("en", "fr"), "bahdanau": ("fr", "en"), "luong": ("en", "de")}
EN, TWO = "the small dog sees a cat", ["the cow sees a hen", "a sad horse likes the cat"]
SENTENCES = "the cow sees a hen. a sad horse likes the cat!\n\n  the mouse finds the black dog"
HTML = '<p class="x">the small <b>dog</b> sees a cat<br>the <a href="/y?a=1&amp;b=2">cow</a> barks</p><pre>a dog</pre>'
ENGLISH, FRENCH = (
    "the dogs are running through the street with the children",
    "les chiens courent dans la rue avec les enfants",
)
ASK = {"q": EN, "source": "en", "target": "fr"}


def ask(path: str = "/translate", **changes: Any) -> tuple[str, str, dict[str, Any]]:
    """A request with JSON; what is None is left out."""
    values = {**ASK, **changes}
    return "POST", path, {"json": {name: value for name, value in values.items() if value is not None}}


ANSWERED = {
    "a text": ask(),
    "a form": ("POST", "/translate", {"data": ASK}),
    "a query": ("POST", "/translate/", {"params": ASK}),
    "a form of parts": ("POST", "/translate", {"files": {name: (None, value) for name, value in ASK.items()}}),
    "a list": ask(q=TWO),
    "a list of one": ask(q=TWO[:1]),
    "sentences": ask(q=SENTENCES),
    "no words": ask(q=" ...\r\n😀 ? "),
    "another run": ask(target="de", q=TWO),
    "alternatives": ask(alternatives=3),
    "alternatives of a list": ask(alternatives=2, q=TWO, target="de"),
    "alignment": ask(alignment=True, q="the cow sees a hen. a sad horse likes the cat"),
    "alignment of a recurrent network": ask(alignment=True, target="de"),
    "html": ask(q=HTML, format="html"),
    "html of a recurrent network": ask(q=HTML, format="html", target="de"),
    "html, alternatives": ask(q=[HTML, "<i>a cat</i>"], format="html", alternatives=2),
    "a glossary": ask(glossary=[["dog", "chat"]]),
    "auto": ask(source="auto", q=ENGLISH),
    "auto, a list": ask(source="auto", q=[ENGLISH, FRENCH, "?!"]),
    "stream": ask(stream=True, q=SENTENCES),
    "stream of a list": ask(stream=True, q=TWO, alternatives=1, alignment=True),
    "stream of html": ask(stream=True, q=HTML, format="html"),
    "detect": ("POST", "/detect", {"data": {"q": FRENCH}}),
    "detect, no words": ("POST", "/detect", {"json": {"q": "12"}}),
    "languages": ("GET", "/languages", {}),
    "settings": ("GET", "/frontend/settings", {}),
    "health": ("GET", "/health", {}),
    "ready": ("GET", "/ready", {}),
    "options": ("OPTIONS", "/translate", {}),
}
LONG = "the cow " * 30
REFUSED = {
    "no text": ask(q=None),
    "an empty text": ask(q=""),
    "a number": ask(q=["a", 1]),
    "no source": ask(source=None),
    "no target": ask(target=None),
    "an unknown source": ask(source="zz"),
    "an unknown target": ask(target="zz"),
    "an unknown format": ask(format="xyz"),
    "alternatives that are no number": ask(alternatives="two"),
    "too many alternatives": ask(alternatives=6),
    "too long": ask(q=LONG),
    "too many": ask(q=["a"] * 4),
    "alignment that is neither": ask(alignment="perhaps"),
    "a glossary that is none": ask(glossary=[["dog"]]),
    "stream, an unknown target": ask(stream=True, target="zz"),
    "no JSON": ("POST", "/translate", {"content": b"{", "headers": {"content-type": "application/json"}}),
    "no object": ("POST", "/translate", {"content": b"[]", "headers": {"content-type": "application/json"}}),
    "too large": ask(q="a" * 300_000),
    "a method": ("GET", "/translate", {}),
    "a path": ("GET", "/nothing", {}),
    "a long path": ("GET", f"/{'a' * 3_000}", {}),
    "suggest": ("POST", "/suggest", {"data": {"q": "x", "s": "y"}}),
    "detect without a text": ("POST", "/detect", {"data": {}}),
    "metrics without the token": ("GET", "/metrics", {}),
    "no file": ("POST", "/translate_file", {"data": ASK}),
    "an empty file": ("POST", "/translate_file", {"files": {"file": ("a.txt", b"")}, "data": ASK}),
    "an unknown kind of file": ("POST", "/translate_file", {"files": {"file": ("a.pdf", b"a")}, "data": ASK}),
    "a file, no source": ("POST", "/translate_file", {"files": {"file": ("a.txt", b"a")}}),
    "a file, an unknown target": (
        "POST",
        "/translate_file",
        {"files": {"file": ("a.txt", b"a")}, "data": ASK | {"target": "zz"}},
    ),
    "a file that is no archive": ("POST", "/translate_file", {"files": {"file": ("a.docx", b"a")}, "data": ASK}),
    "a file that is no text": ("POST", "/translate_file", {"files": {"file": ("a.txt", b"\xff")}, "data": ASK}),
    "a file too large": ("POST", "/translate_file", {"files": {"file": ("a.txt", b"a" * 40_000)}, "data": ASK}),
    "a download": ("GET", "/download_file/00000000-0000-0000-0000-000000000000.a.txt", {}),
}
# Headers that clients go by.
HEADERS = (
    "content-type",
    "retry-after",
    "www-authenticate",
    "allow",
    "access-control-allow-origin",
    "access-control-allow-methods",
)


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., Any]]:
    """Starts a server of some settings, once for all tests."""
    clients = dict[tuple[Any, ...], Any]()
    with ExitStack() as stack:

        def start(internals: Any, **settings: Any) -> Any:
            key = tuple(sorted(settings.items()))
            if key not in clients:
                folder = Path(__file__).parent / "runs"
                clients[key] = stack.enter_context(
                    internals.server([folder / name for name in RUNS], [*RUNS.values()], **settings)
                )
            return clients[key]

        yield start


def answer_of(response: Any) -> list[Any]:
    """Status, headers, and body: JSON, events, or text."""
    kind, text = response.headers.get("content-type", ""), response.text
    headers = {name: response.headers[name] for name in HEADERS if name in response.headers}
    if kind.startswith("text/event-stream"):
        return [
            response.status_code,
            headers,
            [json.loads(part.removeprefix("data: ")) for part in text.split("\n\n")[:-1]],
        ]
    body = response.json() if kind.startswith("application/json") else text
    return [response.status_code, headers, body]


@pytest.mark.parametrize("name", ANSWERED)
def test_what_is_answered(golden, internals, serve, name: str) -> None:
    method, path, request = ANSWERED[name]
    golden.check(name, answer_of(serve(internals).request(method, path, **request)), relative=1e-3)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(golden, internals, serve, name: str) -> None:
    client = serve(internals, char_limit=100, batch_limit=3, max_file=30_000, metrics_auth_token="secret")
    method, path, request = REFUSED[name]
    golden.check(f"refused: {name}", answer_of(client.request(method, path, **request)))


@pytest.mark.parametrize("ending", ["txt", "html", "md", "srt", "docx", "odt"])
def test_documents(golden, internals, serve, frozen_folder: Path, ending: str) -> None:
    client, content = serve(internals), (frozen_folder / "documents" / f"letter.{ending}").read_bytes()
    answer = client.post(
        "/translate_file", files={"file": (f"letter.{ending}", content)}, data={"source": "en", "target": "fr"}
    )
    assert answer.status_code == 200, answer.text
    address = answer.json()["translatedFileUrl"]
    assert re.fullmatch(rf"http://testserver/download_file/[0-9a-f-]{{36}}\.letter\.{ending}", address)
    translated = client.get(address).content
    # from Python it is the same
    run = attent.load(frozen_folder / "runs" / "pairs")
    assert (
        attent.documents.translate(frozen_folder / "documents" / f"letter.{ending}", run, language="en") == translated
    )
    if ending in ("docx", "odt"):
        with zipfile.ZipFile(io.BytesIO(translated)) as file:
            main = file.read({"docx": "word/document.xml", "odt": "content.xml"}[ending]).decode()
            golden.check(f"letter.{ending}", {"entries": sorted(file.namelist()), "body": main[main.index("body") :]})
    else:
        golden.check(f"letter.{ending}", translated.decode())


def test_keys_and_limits(golden, internals, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("few 2\nblocked 0\n", encoding="utf-8")
    runs = [Path(__file__).parent / "runs" / "pairs"]
    with internals.server(
        runs, [("en", "fr")], api_keys_file=tmp_path / "keys", require_api_key=True, disable_files_translation=True
    ) as client:
        for number, key in enumerate((None, "wrong", "blocked", "few", "few", "few")):
            golden.check(
                f"key {number}: {key}",
                answer_of(client.post("/translate", json={**ASK, "api_key": key} if key else ASK)),
            )
            # the second of two texts a minute
            client.post("/translate", json={**ASK, "api_key": key} if key else ASK)
        golden.check("settings without files", answer_of(client.get("/frontend/settings")))
        upload = client.post("/translate_file", files={"file": ("a.txt", b"a")}, data=ASK)
        golden.check("no files", answer_of(upload))


def test_beam(golden, internals) -> None:
    runs = [Path(__file__).parent / "runs" / name for name in RUNS]
    with internals.server(runs, [*RUNS.values()], beam=3, batch=2) as client:
        for name, changes in {
            "texts": {"q": TWO},
            "alternatives": {"alternatives": 4},
            "stream": {"q": SENTENCES, "stream": True},
        }.items():
            method, path, request = ask(**changes)
            golden.check(f"beam: {name}", answer_of(client.request(method, path, **request)))
