from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator

import pytest
import torch

from attent.serve import connections
from attent.serve.exploring import Exploring, explore

BODY = (
    b"POST /api/translate HTTP/1.1\r\nHost: HOST\r\nX-Attent-Token: TOKEN\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
)


@pytest.fixture
def exploring(monkeypatch: pytest.MonkeyPatch) -> Iterator[Exploring]:
    monkeypatch.setattr(connections, "LIMIT", 0.5)
    with explore(torch.rand(3, 3)) as running:
        yield running


def half(exploring: Exploring, request: bytes) -> socket.socket:
    """A connection that has sent the beginning of a request."""
    connection = socket.create_connection(("127.0.0.1", exploring.port), timeout=20)
    connection.sendall(request.replace(b"HOST", f"127.0.0.1:{exploring.port}".encode()).replace(b"TOKEN", exploring.token.encode()))
    return connection


def until_closed(connection: socket.socket) -> bytes:
    with connection:
        return b"".join(iter(lambda: connection.recv(4096), b""))


@pytest.mark.parametrize("request_", [b"", b"GET / HTTP/1.1\r\nHost: HO", BODY], ids=["nothing", "headers", "body"])
def test_a_request_that_is_not_whole_in_time_ends_its_connection(
    exploring: Exploring, request_: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    begin = time.monotonic()
    assert until_closed(half(exploring, request_)) == b""
    assert 0.4 < time.monotonic() - begin < 15
    assert capfd.readouterr().err == ""


def test_a_second_request_of_a_connection_has_as_long_as_the_first(exploring: Exploring) -> None:
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
    monkeypatch.setattr(connections, "LIMIT", 300)
    with explore(torch.rand(3, 3)) as exploring:
        slow = [half(exploring, request) for request in (b"GET / HTTP/1.1\r\n", BODY)]
        time.sleep(0.2)
        assert exploring.close(20)
    for connection in slow:
        connection.close()
    assert capfd.readouterr().err == ""
