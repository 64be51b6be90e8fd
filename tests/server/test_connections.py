"""Slow clients and too many of them, over sockets."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from attent.server import connections
from attent.server.connections import (
    MAX_FIELDS,
    MAX_HEAD,
    MAX_PIPELINED,
    REFUSAL,
    TOO_LARGE,
    BoundedProtocol,
    share_listener,
)
from attent.server.limits import AddressLimits

REQUEST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
LATE = REQUEST.replace(b"/ ", b"/late ", 1)
LAST = REQUEST.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
# Bytes of a long answer: more than the buffers of both sockets.
LONG = 2**24
SECONDS = 0.2
# Beginnings of requests, and what may follow them without an end.
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "path": (b"GET /", b"a"),
    "query": (b"GET /?", b"a&"),
    "name": (b"GET / HTTP/1.1\r\n", b"a"),
    "value": (b"GET / HTTP/1.1\r\na: ", b"a"),
    "headers": (b"GET / HTTP/1.1\r\n", b"a: b\r\n"),
    "trailers": (CHUNKED + b"0\r\n", b"a: b\r\n"),
    "trailer": (CHUNKED + b"0\r\na: ", b"b"),
    "extension": (CHUNKED + b"1;", b"a"),
    "extensions": (CHUNKED, b"1;" + b"a" * 2**12 + b"\r\nx\r\n"),
    "lines": (b"", b"\r\n"),
    "lines of a second request": (REQUEST, b"\r\n"),
}


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the body; a path asks for a long answer, or for a late one."""
    body, before = b"", len(scope["headers"])
    while (message := await receive())["type"] != "http.disconnect":
        body += message["body"]
        if not message["more_body"]:
            break
    assert len(scope["headers"]) == before
    if scope["path"] == "/late":
        await asyncio.sleep(2 * SECONDS)
    body = bytes(LONG) if scope["path"] == "/long" else body
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]}
    )
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def served(
    limit: int = 100, address_limit: int = 100, exempt: tuple[str, ...] = (), seconds: float = SECONDS
) -> AsyncIterator[tuple[int, ServerState]]:
    config, state = uvicorn.Config(app, log_level="critical", ws="none", lifespan="off"), ServerState()
    config.load()
    limits = AddressLimits(limit, address_limit, exempt)

    def protocol() -> BoundedProtocol:
        return BoundedProtocol(
            config=config, server_state=state, app_state={}, limits=limits, seconds=(seconds, seconds, seconds)
        )

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], state
    server.close()
    for connection in list(state.connections):
        connection.transport.abort()
    await until_connected(state, 0)


async def ask(port: int, request: bytes = REQUEST) -> bytes:
    """Return the answer's body; nothing if the connection was closed without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        return head.split()[1] + b" " + await reader.read(3)
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return b""
    finally:
        writer.close()


async def until_connected(state: ServerState, count: int) -> None:
    async with asyncio.timeout(10):
        while len(state.connections) != count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("waiting", "answers"), [(MAX_PIPELINED, MAX_PIPELINED + 1), (MAX_PIPELINED + 1, 0)])
async def test_a_connection_that_sends_too_many_requests_at_once_is_ended(waiting: int, answers: int) -> None:
    # the first is answered later than a request may take
    sent = LATE + REQUEST * (waiting - 1) + LAST
    assert (await converse(sent, seconds=SECONDS)).count(b"200 OK") == answers


def test_answers_to_a_client_that_has_gone_are_dropped_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from uvloop import new_event_loop

    errors = list[str]()
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "error", lambda message, *_, **__: errors.append(message))

    async def run() -> None:
        async with served() as (port, state):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            # the first is being answered, and is not the last
            writer.write(LATE * 3)
            await asyncio.sleep(SECONDS / 2)
            assert len(state.tasks) == 1
            writer.transport.abort()
            while state.tasks:
                await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())
    assert not errors


async def converse(*parts: bytes, seconds: float = 60.0) -> bytes:
    """Return all that a server answers to these parts, each sent by itself, until it closes the connection."""
    async with served(seconds=seconds) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answer = asyncio.ensure_future(reader.read())
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.001)
                if answer.done():
                    break
            return await asyncio.wait_for(answer, 20)
        except ConnectionResetError:
            return b""
        finally:
            answer.cancel()
            writer.close()


@pytest.mark.parametrize("kind", ENDLESS)
async def test_what_has_no_end_is_refused_after_64_kilobytes(kind: str) -> None:
    begin, endless = ENDLESS[kind]
    piece = endless * (2**14 // len(endless))
    answer = await converse(begin, *[piece] * (2 * MAX_HEAD // len(piece) + 1))
    if begin == REQUEST:
        assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.endswith(TOO_LARGE)


@pytest.mark.parametrize(("begin", "excess"), [(1, 0), (2**14, 100), (2**20, 0), (2**20, 100)])
async def test_a_head_has_64_kilobytes(begin: int, excess: int) -> None:
    line, last = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\na: ", b"\r\n\r\n"
    head = line + b"a" * (MAX_HEAD - len(line + last) + excess) + last
    answer = await converse(head[:begin], head[begin:-2], head[-2:])
    assert answer == TOO_LARGE if excess else answer.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("excess", [0, 1])
async def test_a_request_has_a_hundred_headers_with_its_trailers(excess: int) -> None:
    head = CHUNKED[:-2] + b"Connection: close\r\n" + b"a: b\r\n" * (MAX_FIELDS - 4) + b"\r\n"
    answer = await converse(head + b"3\r\nabc\r\n0\r\n" + b"a: b\r\n" * (1 + excess) + b"\r\n")
    assert answer == TOO_LARGE if excess else answer.endswith(b"abc")


async def test_small_chunks_are_a_body_all_the_same() -> None:
    head = CHUNKED.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    answer = await converse(head, *[b"1\r\nx\r\n" * 2**13] * 8, b"0\r\n\r\n")
    assert answer.endswith(b"\r\n\r\n" + b"x" * 2**16)


@pytest.mark.parametrize("kind", ["path", "headers", "lines", "no request"])
async def test_an_answer_under_way_is_no_refusal_of_what_comes_after_it(kind: str) -> None:
    begin, endless = ENDLESS.get(kind, (b"", b"\0"))
    answer = await converse(LATE, begin + endless * 2**17)
    assert answer.startswith(b"HTTP/1.1 200 OK") and answer.endswith(b"abc")


async def test_requests_that_wait_have_64_kilobytes_together() -> None:
    body = b"x" * (MAX_HEAD // 2)
    waiting = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    assert (await converse(LATE + waiting + LAST)).count(b"200 OK") == 3
    assert (await converse(LATE + waiting * 2 + LAST)).count(b"200 OK") == 0


async def test_a_body_that_goes_on_after_its_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_DROPPED", 2**16)

    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    monkeypatch.setitem(globals(), "app", refuse)
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n"
    assert (await converse(head, *[b"x" * 2**14] * 8)).count(b"413") <= 1


async def test_a_connection_without_a_second_request_is_ended() -> None:
    answer = await converse(REQUEST, b"\r\n", seconds=SECONDS)
    assert answer.endswith(b"abc") or not answer


@pytest.mark.parametrize("begin", [b"", b"POST / HT", REQUEST[:-1], REQUEST + b"GET / HTT"])
async def test_a_request_that_does_not_come_is_given_up(begin: bytes) -> None:
    async with served() as (port, state):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begin)
        # nobody waits for it meanwhile
        assert await ask(port) == b"200 abc"
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await asyncio.wait_for(reader.readexactly(2**10), 10)
        writer.close()
        await until_connected(state, 0)


async def test_a_client_that_does_not_read_is_given_up() -> None:
    async with served() as (port, state):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.sleep(SECONDS / 2)
        assert len(state.connections) == 1
        await until_connected(state, 0)
        client.close()


@pytest.mark.parametrize("limits", [(2, 100), (100, 2)])
async def test_connections_beyond_the_limit_are_refused_at_once(limits: tuple[int, int]) -> None:
    async with served(*limits) as (port, state):
        with socket.create_connection(("127.0.0.1", port)):
            with socket.create_connection(("127.0.0.1", port)):
                await until_connected(state, 2)
                assert await ask(port) == b'503 {"e'
            await until_connected(state, 1)
            assert await ask(port) == b"200 abc"


async def test_a_trusted_proxy_has_no_limit_of_its_own() -> None:
    async with served(100, 1, ("127.0.0.1",)) as (port, _):
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
            assert await ask(port) == b"200 abc"


@pytest.mark.parametrize("refusal", [REFUSAL, TOO_LARGE])
def test_a_refusal_says_how_long_it_is(refusal: bytes) -> None:
    head, _, body = refusal.partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}\r\n".encode() in head + b"\r\n"


async def test_a_server_that_ends_closes_connections_with_half_a_request() -> None:
    async with served() as (port, state):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST[:-1])
        while not state.connections or next(iter(state.connections)).cycle is None:
            await asyncio.sleep(0.01)
        next(iter(state.connections)).shutdown()
        assert await asyncio.wait_for(reader.read(), SECONDS / 2) == b""
        writer.close()


def test_clients_that_come_at_once_are_accepted_in_few_turns() -> None:
    uvloop, clients, iterations = pytest.importorskip("uvloop"), 32, list[int]()

    class Counter(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            iterations.append(iteration)
            transport.close()

    async def accept(listener: socket.socket, stack: ExitStack) -> None:
        nonlocal iteration
        loop = asyncio.get_running_loop()
        for _ in range(clients):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        servers = [await loop.create_server(Counter, sock=item) for item in share_listener(listener)]
        while len(iterations) < clients:
            iteration += 1
            await asyncio.sleep(0)
        for server in servers:
            server.close()
        await asyncio.sleep(0.01)

    iteration = 0
    with ExitStack() as stack, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(accept(socket.create_server(("127.0.0.1", 0), backlog=clients), stack))
    # one socket alone takes as many turns as there are clients
    assert iteration <= clients // 4
