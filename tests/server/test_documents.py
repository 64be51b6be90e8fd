"""Documents by LibreTranslate's contract: their names, error texts and limits."""

from __future__ import annotations

import errno
import io
import re
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from attent.server import documents
from attent.server.documents import public_address

Serve = Callable[..., TestClient]
ASK = {"source": "en", "target": "de"}
URL = re.compile(r"http://testserver(/download_file/[0-9a-f]{8}-[0-9a-f-]{27}\.([^/]+))")


def send(client: TestClient, content: bytes = b"...", name: str = "a.txt", **values: str):
    return client.post("/translate_file", files={"file": (name, content)}, data=ASK | values)


def path_of(client: TestClient, content: bytes = b"...", name: str = "a.txt", **values: str) -> str:
    """Translate a document, and return the path to download it by."""
    answer = send(client, content, name, **values)
    assert answer.status_code == 200, answer.text
    match = URL.fullmatch(unquote(answer.json()["translatedFileUrl"]))
    assert match is not None
    return match[1]


def test_texts_of_documents_are_translated_as_texts_are(serve: Serve, translators: dict) -> None:
    texts = ["a dog runs", *(f"dog {'cde' * number}" for number in range(1, 21))]
    content = "\r\n\r\n  ".join(texts).encode() + b"\n"
    # more texts than fit into the queue at once
    with serve(queue_limit=3, batch=8) as client:
        expected = "\r\n\r\n  ".join(translators["en:de"].translate(texts)).encode() + b"\n"
        assert client.get(path_of(client, content, "a.TXT")).content == expected
        german = "die Hunde laufen durch die Straßen und die Kinder spielen".encode()
        assert client.get(path_of(client, german, source="auto")).content == german


FILE = {"file": ("a.txt", b"a")}
WRONG = [
    ({"json": ASK}, 400, "Invalid request: missing file parameter"),
    ({"data": ASK | {"file": "text"}}, 400, "Invalid request: empty file"),
    ({"files": {"file": (".txt", b"a")}, "data": ASK}, 400, "Invalid request: file format not supported"),
    ({"files": FILE, "data": {"source": "en"}}, 400, "Invalid request: missing target parameter"),
    ({"files": FILE, "data": {"source": "en", "target": "fr"}}, 400, "fr is not supported"),
    ({"files": {"file": ("a.txt", b"a" * 2_000)}, "data": ASK}, 413, "a document may have at most 1,000 bytes"),
    ({"files": {"file": ("a.html", b"<b>" * 99 + b"a" + b"</b>" * 99)}, "data": ASK}, 400, "nested at most 50 deep"),
]


def test_wrong_requests_are_answered_in_the_words_that_clients_know(serve: Serve) -> None:
    client = serve(max_file=1_000)
    for form, status, error in WRONG:
        answer = client.post("/translate_file", **form)
        assert answer.status_code == status and answer.json()["error"].endswith(error), (form, answer.text)
    assert not client.files._files


def test_bombs_are_refused(serve: Serve) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("word/document.xml", bytes(20 * 2**20))
    error = "Invalid request: the archive's entries unpack to more than 200 times their size"
    client = serve()
    for name in ("a.docx", "a.odt"):
        answer = send(client, stream.getvalue(), name)
        assert (answer.status_code, answer.json()) == (400, {"error": error})


NAMES = {
    "../../etc/passwd.txt": "passwd.txt",
    'a"\r\nSet-Cookie: x=y;.txt': "a_22_0D_0ASet-Cookie_x_y_.txt",
    "größe.txt": "größe.txt",
}


def test_names_lead_nowhere_and_are_no_labels_of_numbers(serve: Serve) -> None:
    client = serve()
    for name, safe in NAMES.items():
        path = path_of(client, b"...", name)
        assert path.partition(".")[2] == safe
        fetched = client.get(path)
        assert fetched.content == b"..." and "set-cookie" not in fetched.headers
        assert fetched.headers["content-disposition"].startswith("attachment; filename")
        assert fetched.headers["x-content-type-options"] == "nosniff"
        assert fetched.headers["content-type"] == "application/octet-stream"
    for path in ("x", "../config.json", "..%2Fconfig.json", "00000000-0000-0000-0000-000000000000.a.txt", "%00", "%FF"):
        answer = client.get(f"/download_file/{path}")
        assert (answer.status_code, answer.json()) == (404, {"error": "Not Found"})
    text = client.get("/metrics").text
    assert 'attent_requests_total{endpoint="/download_file/{name}",status="200"} 3.0' in text
    assert "passwd" not in text


def test_documents_are_deleted_after_their_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve(file_lifetime=60)
    path = path_of(client)
    assert client.get(path).status_code == 200
    now = time.monotonic()
    monkeypatch.setattr("attent.server.translated_files.time.monotonic", lambda: now + 61)
    assert client.get(path).status_code == 404
    assert not client.files._files


def test_a_full_disk_is_said_in_a_line(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve()

    async def write_nothing(upload: object, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("starlette.datastructures.UploadFile.write", write_nothing)
        answer = send(client)
    message = "The server cannot store the document: No space left on device"
    assert (answer.status_code, answer.json()) == (507, {"error": message})
    assert send(client).status_code == 200


def test_keys_and_limits_hold(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("free\n")
    client = serve(api_keys_file=tmp_path / "keys", require_api_key=True, req_limit=3, char_limit=10)
    assert send(client).json() == {"error": "Please contact the server operator to get an API key"}
    assert send(client, api_key="wrong").json() == {"error": "Invalid API key"}
    # a document counts as texts of the largest size
    assert send(client, b"a dog runs far", api_key="free").status_code == 200
    statuses = [client.post("/translate", json={"q": "a dog", "api_key": "free", **ASK}).status_code for _ in range(2)]
    assert statuses == [200, 429]


def test_too_many_documents_or_sentences_are_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve()
    monkeypatch.setattr(documents, "MAX_SENTENCES", 3)
    assert send(client, b"A dog. Two men. A cat.").status_code == 200
    answer = send(client, b"A dog. Two men.\nA cat. A bird.")
    error = "Invalid request: a document may have at most 3 sentences: cut it into several"
    assert (answer.status_code, answer.json()) == (400, {"error": error})
    monkeypatch.setattr(documents, "MAX_DOCUMENTS", 0)
    answer = send(client)
    assert answer.status_code == 429 and "busy" in answer.json()["error"]


def address(headers: dict[str, str], trusted: frozenset[str] = frozenset()) -> str:
    names = {"type": "http", "scheme": "http", "path": "/", "query_string": b""}
    addresses = {"server": ("10.0.0.7", 5000), "client": ("10.0.0.1", 7)}
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    return public_address(Request({**names, **addresses, "headers": encoded}), trusted)


def test_a_host_is_taken_in_addresses_and_nothing_else() -> None:
    for host in ("example.org", "localhost:5000", "127.0.0.1:80", "[::1]:5000"):
        assert address({"host": host}) == f"http://{host}"
    wrong = ["", "a b", "a/b", "x@evil.org", "evil.org#", 'a"', "a\r\nb", "a:b", "-a", "a" * 300, "a:123456", "é.org"]
    for host in wrong:
        assert address({"host": host}) == "http://10.0.0.7:5000"


def test_a_proxy_is_believed_where_it_is_trusted() -> None:
    def forwarded(protocol: str, host: str, prefix: str) -> dict[str, str]:
        names = ("host", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-prefix")
        return dict(zip(names, ("inner", protocol, host, prefix), strict=True))

    right, wrong = forwarded("https", "example.org", "/mt/"), forwarded("javascript", "a/b", "/../x")
    assert address(right) == "http://inner"
    trusted = frozenset({"10.0.0.1"})
    assert address(right, trusted) == "https://example.org/mt"
    assert address(wrong, trusted) == "http://inner"
