from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
import torch
from starlette.testclient import TestClient

from attent.explorer import security
from attent.explorer.security import MAX_BODY
from attent.explorer.server import ExploreServer, explore

HOST = "127.0.0.1:8765"


def test_our_own_page_may_call(client: TestClient) -> None:
    headers = {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}
    assert client.get("/api/about", headers=headers).status_code == 200
    assert client.post("/api/translate", json={"text": "a"}, headers=headers).status_code == 200
    assert client.get("/api/about", headers={"Host": "LOCALHOST:8765"}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        # a name of somebody's that now means this machine
        ({"Host": "evil.example:8765"}, 421, "not called evil.example:8765"),
        ({"Host": "127.0.0.1:9999"}, 421, "not called 127.0.0.1:9999"),
        ({"Host": "127.0.0.1"}, 421, "not called 127.0.0.1"),
        ({"Host": ""}, 421, "not called"),
        ({"Origin": "https://evil.example"}, 403, "pages of https://evil.example may not call"),
        ({"Origin": "null"}, 403, "pages of null may not call"),
        ({"Origin": f"https://{HOST}"}, 403, "may not call"),
        ({"Origin": f"http://{HOST}.evil.example"}, 403, "may not call"),
        ({"Sec-Fetch-Site": "cross-site"}, 403, "pages of another site"),
        ({"Sec-Fetch-Site": "same-site"}, 403, "pages of another site"),
        ({"X-Attent-Token": "another"}, 403, "the token is missing or from an earlier start"),
        ({"X-Attent-Token": ""}, 403, "the token is missing"),
        ({"X-Attent-Token": "ä".encode("latin-1")}, 403, "the token is missing"),
    ],
)
@pytest.mark.parametrize("path", ["/api/about", "/api/scenes/0", "/api/nothing"])
def test_nobody_else_may(client: TestClient, headers: dict[str, str], status: int, message: str, path: str) -> None:
    answer = client.get(path, headers=headers)
    assert answer.status_code == status
    assert message in answer.json()["error"]


def test_another_site_can_neither_post_nor_read(client: TestClient) -> None:
    """What a form or a script of another site can send without asking has no token and is no JSON."""
    foreign_headers = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "X-Attent-Token": ""}
    answer = client.post(
        "/api/translate", content=b'{"text": "a"}', headers={**foreign_headers, "Content-Type": "text/plain"}
    )
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers
    preflight = client.options("/api/translate", headers={**foreign_headers, "Access-Control-Request-Method": "POST"})
    assert preflight.status_code == 403
    assert "access-control-allow-origin" not in preflight.headers
    assert (
        client.get("/web/explore.js", headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}).status_code
        == 403
    )


def test_a_link_to_the_page_may_stand_anywhere(client: TestClient) -> None:
    linked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "X-Attent-Token": ""}
    page = client.get("/", headers=linked)
    assert page.status_code == 200
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert client.get("/api/about", headers=linked).status_code == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_body_is_json(client: TestClient, kind: str) -> None:
    answer = client.post("/api/translate", content=b'{"text": "a"}', headers={"Content-Type": kind})
    assert answer.status_code == 415


def test_a_body_that_is_too_large_is_refused_before_it_is_read(client: TestClient) -> None:
    json = {"Content-Type": "application/json"}
    answer = client.post("/api/translate", content=b" " * (MAX_BODY + 1), headers=json)
    assert (answer.status_code, answer.json()) == (413, {"error": "a request may have at most 1,048,576 bytes"})
    assert client.post("/api/translate", content=b"{}", headers={**json, "Content-Length": "a lot"}).status_code == 400


def test_nor_may_it_grow_beyond_what_it_says(client: TestClient) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(20):
            yield b" " * 2**16

    answer = client.post("/api/translate", content=pieces(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


def test_every_answer_says_what_a_page_may_do(client: TestClient) -> None:
    for path in ("/", "/web/explore.js", "/api/about", "/nothing"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "default-src 'self'" in headers["content-security-policy"]


BODY = (
    b"POST /api/translate HTTP/1.1\r\nHost: HOST\r\nX-Attent-Token: TOKEN\r\nContent-Type: application/json\r\n"
    b"Content-Length: 99\r\n\r\n{"
)


@pytest.fixture
def exploring(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExploreServer]:
    monkeypatch.setattr(security, "REQUEST_TIMEOUT", 0.5)
    with explore(torch.rand(3, 3)) as running:
        yield running


def half(exploring: ExploreServer, request: bytes) -> socket.socket:
    """A connection that has sent the beginning of a request."""
    connection = socket.create_connection(("127.0.0.1", exploring.port), timeout=20)
    connection.sendall(
        request.replace(b"HOST", f"127.0.0.1:{exploring.port}".encode()).replace(b"TOKEN", exploring.token.encode())
    )
    return connection


def until_closed(connection: socket.socket) -> bytes:
    with connection:
        return b"".join(iter(lambda: connection.recv(4096), b""))


@pytest.mark.parametrize("request_", [b"", b"GET / HTTP/1.1\r\nHost: HO", BODY], ids=["nothing", "headers", "body"])
def test_a_request_that_is_not_whole_in_time_ends_its_connection(
    exploring: ExploreServer, request_: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    begin = time.monotonic()
    assert until_closed(half(exploring, request_)) == b""
    assert 0.4 < time.monotonic() - begin < 15
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "begin",
    [b"GET / HTTP/1.1\r\na: ", BODY.replace(b"Content-Length: 99", b"Transfer-Encoding: chunked")[:-1] + b"0\r\na: "],
)
def test_headers_without_end_are_refused(monkeypatch: pytest.MonkeyPatch, begin: bytes) -> None:
    monkeypatch.setattr(security, "REQUEST_TIMEOUT", 300)
    with explore(torch.rand(3, 3)) as exploring, half(exploring, begin) as connection:
        for _ in range(8):
            with suppress(OSError):
                connection.sendall(b"a" * 2**14)
        with suppress(ConnectionResetError):
            assert until_closed(connection).startswith(b"HTTP/1.1 400")


def test_a_refusal_repeats_little_of_what_was_sent(client: TestClient) -> None:
    for headers in ({"Host": "a" * 10_000}, {"Origin": "a" * 10_000}):
        assert len(client.get("/api/about", headers=headers).text) < 1_000


def test_a_second_request_of_a_connection_has_as_long_as_the_first(exploring: ExploreServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", exploring.port, timeout=20)
    for _ in range(2):
        connection.request("GET", "/")
        assert connection.getresponse().read().startswith(b"<!")
        # beyond the limit, but nothing has begun
        time.sleep(0.7)
    assert connection.sock is not None
    connection.sock.sendall(b"GET / HTTP/1.1\r\n")
    assert until_closed(connection.sock) == b""


def test_a_server_ends_whoever_is_slow(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(security, "REQUEST_TIMEOUT", 300)
    with explore(torch.rand(3, 3)) as exploring:
        slow = [half(exploring, request) for request in (b"GET / HTTP/1.1\r\n", BODY)]
        time.sleep(0.2)
        assert exploring.close(20)
    for connection in slow:
        connection.close()
    assert capfd.readouterr().err == ""
