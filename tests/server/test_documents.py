"""Documents by LibreTranslate's contract: every format, error text and limit."""

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
from starlette.testclient import TestClient

from attent.server import documents

Serve = Callable[..., TestClient]
ASK = {"source": "en", "target": "de"}
URL = re.compile(r"http://testserver(/download_file/[0-9a-f]{8}-[0-9a-f-]{27}\.([^/]+))")


def send(client: TestClient, content: bytes = b"a dog runs", name: str = "a.txt", **values: str):
    return client.post("/translate_file", files={"file": (name, content)}, data=ASK | values)


def fetch(client: TestClient, content: bytes, name: str) -> bytes:
    """Return the translated document."""
    answer = send(client, content, name)
    assert answer.status_code == 200, answer.text
    match = URL.fullmatch(answer.json()["translatedFileUrl"])
    assert match is not None
    return client.get(match[1]).content


def test_text_documents_are_translated_as_texts_are(serve: Serve, translators: dict) -> None:
    with serve() as client:
        first, second = translators["en:de"].translate(["a dog runs", "two men"])
        assert fetch(client, b"a dog runs\r\n\r\n  two men\n", "a.TXT") == f"{first}\r\n\r\n  {second}\n".encode()
        # a document without a word
        assert fetch(client, b"...\n", "a.txt") == b"...\n"


def test_the_language_is_detected(serve: Serve) -> None:
    german = "die Hunde laufen durch die Straßen und die Kinder spielen"
    with serve() as client:
        answer = send(client, german.encode(), source="auto")
        assert client.get(URL.fullmatch(answer.json()["translatedFileUrl"])[1]).content == german.encode()


FILE = {"file": ("a.txt", b"a")}
WRONG = [
    ({"json": ASK}, 400, "Invalid request: missing file parameter"),
    ({"data": ASK | {"file": "text"}}, 400, "Invalid request: empty file"),
    ({"files": {"file": ("txt", b"a")}, "data": ASK}, 400, "Invalid request: file format not supported"),
    ({"files": FILE, "data": {"source": "en"}}, 400, "Invalid request: missing target parameter"),
    ({"files": FILE, "data": ASK | {"source": "zz"}}, 400, "zz is not supported"),
    ({"files": FILE, "data": {"source": "fr", "target": "en"}}, 400, "target language from French (fr)"),
    ({"files": {"file": ("a.txt", b"a" * 2_000)}, "data": ASK}, 413, "a document may have at most 1,000 bytes"),
    ({"files": {"file": ("a.html", b"<b>" * 99 + b"a" + b"</b>" * 99)}, "data": ASK}, 400, "nested at most 50 deep"),
]


def test_wrong_requests_are_answered_in_the_words_that_clients_know(serve: Serve) -> None:
    client = serve(max_file=1_000)
    for form, status, error in WRONG:
        answer = client.post("/translate_file", **form)
        assert answer.status_code == status and answer.json()["error"].endswith(error), (form, answer.text)
    assert client.files._folder is None


def test_bombs_are_refused(serve: Serve) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("word/document.xml", bytes(20 * 2**20))
    client = serve()
    for name in ("a.docx", "a.odt"):
        answer = send(client, stream.getvalue(), name)
        assert (answer.status_code, answer.json()) == (
            400,
            {"error": "Invalid request: the archive's entries unpack to more than 200 times their size"},
        )


NAMES = {
    "../../etc/passwd.txt": "passwd.txt",
    "C:\\x\\a b.txt": "a_b.txt",
    'a"\r\nSet-Cookie: x=y;.txt': "a_22_0D_0ASet-Cookie_x_y_.txt",
    "größe.txt": "größe.txt",
    "..txt": "document.txt",
    "a" * 300 + ".txt": "a" * 100 + ".txt",
}


def test_names_lead_nowhere(serve: Serve) -> None:
    client = serve()
    for name, safe in NAMES.items():
        path, end = URL.fullmatch(unquote(send(client, b"...", name).json()["translatedFileUrl"])).groups()
        assert end == safe
        fetched = client.get(path)
        assert fetched.content == b"..." and "set-cookie" not in fetched.headers
        assert fetched.headers["content-disposition"].startswith("attachment; filename")
        assert fetched.headers["x-content-type-options"] == "nosniff"
        assert fetched.headers["content-type"] == "application/octet-stream"
    folder = client.files._folder.path
    assert folder.stat().st_mode & 0o77 == 0
    assert all(re.fullmatch("[0-9a-f]{32}", file.name) for file in folder.iterdir())
    assert send(client, b"...", ".txt").json() == {"error": "Invalid request: file format not supported"}
    for path in ("x", "../config.json", "..%2Fconfig.json", "00000000-0000-0000-0000-000000000000.a.txt", "%00", "%FF"):
        answer = client.get(f"/download_file/{path}")
        assert (answer.status_code, answer.json()) == (404, {"error": "Not Found"})


def test_documents_are_deleted_after_their_time_and_at_the_end(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve(file_lifetime=60)
    paths = [URL.fullmatch(send(client, b"...").json()["translatedFileUrl"])[1] for _ in range(2)]
    folder = client.files._folder.path
    assert client.get(paths[0]).status_code == 200
    now = time.monotonic()
    monkeypatch.setattr("attent.server.translated_files.time.monotonic", lambda: now + 61)
    assert client.get(paths[0]).status_code == 404
    assert not [*folder.iterdir()]
    send(client, b"...")
    client.files.close()
    assert not folder.exists()


def test_what_was_cleared_away_is_not_found(serve: Serve) -> None:
    client = serve()
    path = URL.fullmatch(send(client, b"...").json()["translatedFileUrl"])[1]
    (file,) = client.files._folder.path.iterdir()
    file.unlink()
    answer = client.get(path)
    assert (answer.status_code, answer.json()) == (404, {"error": "Not Found"})


def test_a_full_disk_is_said_in_a_line_and_leaves_nothing(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client, write = serve(), Path.write_bytes

    def write_half(path: Path, content: bytes) -> int:
        write(path, content[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write_half)
        answer = send(client, b"...")
    assert (answer.status_code, answer.json()) == (
        507,
        {"error": "The server cannot store the document: No space left on device"},
    )
    assert not [*client.files._folder.path.iterdir()]
    assert send(client, b"...").status_code == 200


def test_a_disk_that_is_full_of_the_upload_is_said_too(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(upload: object, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("starlette.datastructures.UploadFile.write", fail)
    answer = send(serve(), b"...")
    assert (answer.status_code, answer.json()) == (
        507,
        {"error": "The server cannot store the document: No space left on device"},
    )


def test_keys_and_limits_hold(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("free\n")
    client = serve(api_keys_file=tmp_path / "keys", require_api_key=True, req_limit=3, char_limit=10)
    assert send(client, b"...").json() == {"error": "Please contact the server operator to get an API key"}
    assert send(client, b"...", api_key="wrong").json() == {"error": "Invalid API key"}
    # a document counts as texts of the largest size
    assert send(client, b"a dog runs far", api_key="free").status_code == 200
    statuses = [client.post("/translate", json={"q": "a dog", "api_key": "free", **ASK}).status_code for _ in range(2)]
    assert statuses == [200, 429]


def test_a_document_of_many_texts_fits_a_small_queue(serve: Serve, translators: dict) -> None:
    texts = [f"dog {'cde' * number}" for number in range(1, 21)]
    with serve(queue_limit=3, batch=8) as client:
        translated = fetch(client, "\n".join(texts).encode(), "a.txt").decode().split("\n")
    assert translated == translators["en:de"].translate(texts)


def test_more_documents_than_fit_are_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_DOCUMENTS", 0)
    answer = send(serve())
    assert answer.status_code == 429 and "busy" in answer.json()["error"]


def test_names_are_no_labels_of_numbers(serve: Serve) -> None:
    client = serve()
    client.get(URL.fullmatch(send(client, b"...").json()["translatedFileUrl"])[1])
    text = client.get("/metrics").text
    assert 'attent_requests_total{endpoint="/download_file/{name}",status="200"} 1.0' in text
    assert "a.txt" not in text


def test_a_document_of_too_many_sentences_is_refused(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_SENTENCES", 3)
    with serve() as client:
        assert send(client, b"A dog. Two men. A cat.").status_code == 200
        answer = send(client, b"A dog. Two men.\nA cat. A bird.")
    assert (answer.status_code, answer.json()) == (
        400,
        {"error": "Invalid request: a document may have at most 3 sentences: cut it into several"},
    )
