"""Connections: how many there may be, how long a client may take, and how much it may send besides bodies."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from attent.server.limits import AddressLimits

# Seconds from the beginning of a connection, or from the first byte of a request, until its headers have come.
HEADER_SECONDS = 10.0
# Seconds from then on until its body has come.
BODY_SECONDS = 30.0
# Seconds that an answer may wait for its client to read on.
READ_SECONDS = 30.0
# Requests of a connection that may wait for its first answer; each holds some kilobytes, and few clients send a second
# one early.
MAX_PIPELINED = 16
# Bytes of a request line with its headers, of trailers, of what frames a body's chunks beyond 8 a byte, and of all
# requests that wait.
MAX_HEAD = 2**16
# Headers of a request, with its trailers; each is several objects.
MAX_FIELDS = 100
# Bytes of a body that are read, and dropped, after the answer to its request is complete.
MAX_DROPPED = 2**24
# Connections that are accepted in a turn of the event loop.
ACCEPTS = 16
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 32\r\n"
    b'retry-after: 1\r\nconnection: close\r\n\r\n{"error":"Too many connections"}'
)
TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\ncontent-length: 33\r\n"
    b'connection: close\r\n\r\n{"error":"Headers are too large"}'
)


def share_listener(listener: socket.socket, count: int = ACCEPTS) -> list[socket.socket]:
    """Return a socket that listens, and copies of it.

    uvloop (0.23, with libuv 1.52) accepts one connection of each in a turn: of one socket alone, clients that come all
    at once would wait for as many turns as there are of them, each as long as the requests in it take.

    Args:
        listener: the socket.
        count: of sockets, with the first.
    """
    return [listener, *(listener.dup() for _ in range(count - 1))]


class HeadTooLargeError(Exception):
    """The headers or trailers of a request are too many, or too large."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 by httptools, with limits of connections and of headers, and deadlines for slow clients.

    uvicorn bounds headers for h11 alone, with which a short request costs it 183 µs instead of 48 (0.54, on one core).

    Args:
        limits: counts the connections of all protocols of the server.
        seconds: that a client may take for headers, for a body, and for reading on.
        arguments: of uvicorn's protocol.
    """

    def __init__(
        self,
        *arguments: Any,
        limits: AddressLimits,
        seconds: tuple[float, float, float] = (HEADER_SECONDS, BODY_SECONDS, READ_SECONDS),
        **named_arguments: Any,
    ) -> None:
        super().__init__(*arguments, **named_arguments)
        self._limits, self._address = limits, ""
        self._header_seconds, self._body_seconds, self._read_seconds = seconds
        self._is_admitted = False
        self._request_timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None
        # between the first byte of a request and the end of its headers
        self._is_in_head = False
        # of the request under way: bytes and number of the fields reported; bytes since its last part that are neither
        # those nor its body
        self._head = self._fields = self._unreported = 0
        self._is_too_large = self._has_failed = False
        # bytes of requests that wait for an earlier answer; bytes that come after the answer
        self._pipelined = self._dropped = 0
        # requests that are answered or wait for that
        self._cycles = deque[Any]()

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
        # uvicorn tells the last one alone, and the answers to others would be written to a closed socket, an error in
        # uvloop
        for cycle in self._cycles:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, and bound what the parser holds or skips silently, such as a header without an end."""
        if self._has_failed:
            return
        self._unreported += len(data)
        super().data_received(data)
        if self._unreported > MAX_HEAD and not self._has_failed:
            self._is_too_large = True
            self.send_400_response("")
        # line ends between requests, or the rest of one that was answered early: no clock runs otherwise
        if self._request_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_request(self._header_seconds)

    def on_message_begin(self) -> None:
        """Wait for the headers."""
        super().on_message_begin()
        self._is_in_head = True
        self._head = self._fields = self._unreported = self._dropped = 0
        self._expect_request(self._header_seconds)

    def on_url(self, url: bytes) -> None:
        """Count the request line."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header; one that comes after the body is counted alone, and never taken for one of those before."""
        self._fields += 1
        self._count_head(len(name) + len(value))
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Wait for the body; or end a connection that sends too much before it has read an answer."""
        super().on_headers_complete()
        self._cycles.append(self.cycle)
        self._expect_request(self._body_seconds)
        self._count_pipelined(self._head)
        self._is_in_head = False
        self._head = self._unreported = 0

    def on_body(self, body: bytes) -> None:
        """Count the body where nothing else does: while its request waits, and after it was answered."""
        self._unreported = max(self._unreported - 9 * len(body), 0)
        self._count_pipelined(len(body))
        if self.cycle.response_complete:
            self._dropped += len(body)
            if self._dropped > MAX_DROPPED:
                self.transport.abort()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the clock: the request is complete."""
        super().on_message_complete()
        self._unreported = 0
        _cancel(self._request_timer)
        self._request_timer = None

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request, or has too large a head, and end the connection.

        Earlier answers that are under way come first.
        """
        self._has_failed = True
        cycle, is_own = self.cycle, not self._is_in_head and self._request_timer is not None
        if self.pipeline or not (cycle is None or cycle.response_complete or (is_own and not cycle.response_started)):
            cycle.keep_alive = False
        elif self._is_too_large:
            self.transport.write(TOO_LARGE)
            self.transport.close()
        else:
            super().send_400_response(msg)

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
        self._cycles.popleft()
        super().on_response_complete()
        if not self.pipeline:
            self._pipelined = 0
        # a connection that is lost is released
        if self._is_admitted and self.transport.get_write_buffer_size():
            self._expect_reader()

    def shutdown(self) -> None:
        """Close where no answer is under way, including connections with an incomplete request."""
        super().shutdown()
        if self._request_timer is not None:
            self.transport.close()

    def _count_head(self, size: int) -> None:
        self._head += size
        if self._head > MAX_HEAD or self._fields > MAX_FIELDS:
            self._is_too_large = True
            # ends the parsing
            raise HeadTooLargeError

    def _count_pipelined(self, size: int) -> None:
        if self.pipeline:
            self._pipelined += size
            if len(self.pipeline) > MAX_PIPELINED or self._pipelined > MAX_HEAD:
                self.transport.abort()

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
