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


REFUSED = [
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
]


def test_nobody_else_may(client: TestClient) -> None:
    for headers, status, message in REFUSED:
        for path in ("/api/about", "/api/scenes/0", "/api/nothing"):
            answer = client.get(path, headers=headers)
            assert answer.status_code == status and message in answer.json()["error"], headers
    for headers in ({"Host": "a" * 10_000}, {"Origin": "a" * 10_000}):
        assert len(client.get("/api/about", headers=headers).text) < 1_000


def test_another_site_can_neither_post_nor_read(client: TestClient) -> None:
    # what a form or a script of another site can send without asking has no token and is no JSON
    foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "X-Attent-Token": ""}
    posted = client.post("/api/translate", content=b'{"text": "a"}', headers=foreign | {"Content-Type": "text/plain"})
    preflight = client.options("/api/translate", headers=foreign | {"Access-Control-Request-Method": "POST"})
    for answer in (posted, preflight):
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
    script = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert client.get("/web/explore.js", headers=script).status_code == 403


def test_a_link_to_the_page_may_stand_anywhere(client: TestClient) -> None:
    linked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "X-Attent-Token": ""}
    page = client.get("/", headers=linked)
    assert page.status_code == 200
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert client.get("/api/about", headers=linked).status_code == 403


def test_a_body_is_json_and_bounded(client: TestClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = client.post("/api/translate", content=b'{"text": "a"}', headers={"Content-Type": kind})
        assert answer.status_code == 415
    json = {"Content-Type": "application/json"}
    answer = client.post("/api/translate", content=b" " * (MAX_BODY + 1), headers=json)
    assert (answer.status_code, answer.json()) == (413, {"error": "a request may have at most 1,048,576 bytes"})
    assert client.post("/api/translate", content=b"{}", headers={**json, "Content-Length": "a lot"}).status_code == 400
    # nor may it grow beyond what it says
    assert client.post("/api/translate", content=iter([b" " * 2**16] * 20), headers=json).status_code == 413


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


def test_requests_that_are_not_whole_in_time_end_their_connections(
    exploring: ExploreServer, capfd: pytest.CaptureFixture[str]
) -> None:
    begin = time.monotonic()
    # nothing, a part of the headers, and a part of the body
    for connection in [half(exploring, request) for request in (b"", b"GET / HTTP/1.1\r\nHost: HO", BODY)]:
        assert until_closed(connection) == b""
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


def test_a_second_request_of_a_connection_has_as_long_as_the_first(exploring: ExploreServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", exploring.port, timeout=20)
    for pause in (0.7, 0):
        connection.request("GET", "/")
        assert connection.getresponse().read().startswith(b"<!")
        # beyond the limit, but nothing has begun
        time.sleep(pause)
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
