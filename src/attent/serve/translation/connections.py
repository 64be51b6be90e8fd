"""Connections: how many there may be, and how long a client may take to send a request and to read its answer."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Seconds from the beginning of a connection, or from the first byte of a request, until its headers have come.
HEADER_SECONDS = 10.0
# Seconds from then on until its body has come.
BODY_SECONDS = 30.0
# Seconds that an answer may wait for its client to read on.
READ_SECONDS = 30.0
# Requests of a connection that may wait for its first answer; each holds some kilobytes, and few clients send a second one early.
MAX_PIPELINED = 64
# Connections that are accepted in a turn of the event loop.
ACCEPTS = 16
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 32\r\n"
    b'retry-after: 1\r\nconnection: close\r\n\r\n{"error":"Too many connections"}'
)


def share_listener(listener: socket.socket, count: int = ACCEPTS) -> list[socket.socket]:
    """Return a socket that listens, and copies of it.

    uvloop (0.23, with libuv 1.52) accepts one connection of each in a turn: of one socket alone, clients that come all at once would wait
    for as many turns as there are of them, each as long as the requests in it take.

    Args:
        listener: the socket.
        count: of sockets, with the first.
    """
    return [listener, *(listener.dup() for _ in range(count - 1))]


class ConnectionLimits:
    """Counts connections.

    Args:
        limit: of all of them.
        address_limit: of those from one address.
        exempt: addresses that may have as many as they like, such as a proxy's.
    """

    def __init__(self, limit: int, address_limit: int, exempt: Collection[str] = ()) -> None:
        self._limit, self._address_limit, self._exempt = limit, address_limit, exempt
        self._counts: Counter[str] = Counter()
        self._total = 0

    def admit(self, address: str) -> bool:
        """Count a connection, and return True; or return False if there are too many."""
        if self._total >= self._limit or (self._counts[address] >= self._address_limit and address not in self._exempt):
            return False
        self._counts[address] += 1
        self._total += 1
        return True

    def release(self, address: str) -> None:
        """Forget a connection that was admitted."""
        self._total -= 1
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 by httptools, with limits of connections and deadlines for slow clients.

    Args:
        limits: counts the connections of all protocols of the server.
        seconds: that a client may take for headers, for a body, and for reading on.
        arguments: of uvicorn's protocol.
    """

    def __init__(
        self,
        *arguments: Any,
        limits: ConnectionLimits,
        seconds: tuple[float, float, float] = (HEADER_SECONDS, BODY_SECONDS, READ_SECONDS),
        **named_arguments: Any,
    ) -> None:
        super().__init__(*arguments, **named_arguments)
        self._limits, self._address = limits, ""
        self._header_seconds, self._body_seconds, self._read_seconds = seconds
        self._is_admitted = False
        self._request_timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Refuse the connection if there are too many; else wait for the first request."""
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._is_admitted = self._limits.admit(self._address)
        if self._is_admitted:
            self._expect_request(self._header_seconds)
        else:
            transport.write(REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        _cancel(self._request_timer)
        _cancel(self._answer_timer)
        if self._is_admitted:
            self._is_admitted = False
            self._limits.release(self._address)
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Wait for the headers."""
        super().on_message_begin()
        self._expect_request(self._header_seconds)

    def on_headers_complete(self) -> None:
        """Wait for the body; or end a connection that sends too many requests before it has read an answer."""
        super().on_headers_complete()
        self._expect_request(self._body_seconds)
        if len(self.pipeline) > MAX_PIPELINED:
            self.transport.abort()

    def on_message_complete(self) -> None:
        """Stop the clock: the request is complete."""
        super().on_message_complete()
        _cancel(self._request_timer)
        self._request_timer = None

    def pause_writing(self) -> None:
        """Wait for the client to read on."""
        super().pause_writing()
        self._expect_reader()

    def resume_writing(self) -> None:
        """Stop the clock: the client reads."""
        super().resume_writing()
        _cancel(self._answer_timer)

    def on_response_complete(self) -> None:
        """Wait for the client to read the rest."""
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._expect_reader()

    def shutdown(self) -> None:
        """Close where no answer is under way, including connections with an incomplete request."""
        super().shutdown()
        if self._request_timer is not None:
            self.transport.close()

    def _expect_request(self, seconds: float) -> None:
        _cancel(self._request_timer)
        self._request_timer = self._later(seconds, self.transport.abort)

    def _expect_reader(self) -> None:
        _cancel(self._answer_timer)
        self._answer_timer = self._later(self._read_seconds, self._abort_unread)

    def _abort_unread(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _later(self, seconds: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        return self.loop.call_later(seconds, action)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
