"""Limits on connections: their number, their deadlines, and the bytes that they may send besides bodies."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from attent.server.limits import AddressLimits

# Seconds from the start of a connection, or from the first byte of a request, until its headers have arrived.
HEADER_SECONDS = 10.0
# Seconds from then on until its body has arrived.
BODY_SECONDS = 30.0
# Seconds that an answer may wait for its client to continue reading.
READ_SECONDS = 30.0
# Maximum pipelined requests of a connection; each takes some kilobytes, and few clients pipeline requests at all.
MAX_PIPELINED = 16
# Maximum bytes of a request line with its headers, of trailers, of chunk framing beyond 8 bytes per byte of the body,
# and of all pipelined requests.
MAX_HEAD = 2**16
# Maximum headers and trailers of a request; each takes several objects.
MAX_FIELDS = 100
# Maximum bytes of a body that are read and dropped after the answer to its request is complete.
MAX_DROPPED = 2**24
# Connections accepted in one iteration of the event loop.
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
    """Return a listening socket and copies of it.

    uvloop (0.23, with libuv 1.52) accepts one connection per socket in each iteration of the event loop. With a single
    socket, the n-th of many simultaneous clients would wait for n iterations, each as long as its requests take.

    Args:
        listener: the socket.
        count: the number of sockets, including the first.
    """
    return [listener, *(listener.dup() for _ in range(count - 1))]


class HeadTooLargeError(Exception):
    """A request has too many or too large headers or trailers."""


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's httptools protocol, with limits on connections and headers and deadlines for slow clients.

    uvicorn limits headers only with h11, with which a short request takes 183 µs instead of 48 (0.54, on one core).

    Args:
        limits: the connection counts, shared by all protocol instances of the server.
        seconds: the seconds that a client may take to send headers, to send a body, and to resume reading.
        arguments: the arguments of uvicorn's protocol.
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
        # for the current request: the bytes and number of the reported fields, and the bytes received since its last
        # reported part that belong neither to fields nor to its body
        self._head = self._fields = self._unreported = 0
        self._is_too_large = self._has_failed = False
        # bytes of pipelined requests; bytes that arrive after the answer
        self._pipelined = self._dropped = 0
        # requests being answered or waiting to be answered
        self._cycles = deque[Any]()

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Refuse the connection if there are too many; otherwise wait for the first request."""
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self._is_admitted = self._limits.admit(self._address)
        if self._is_admitted:
            self._expect_request(self._header_seconds)
        else:
            transport.write(REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, release the connection, and notify its pending requests."""
        _cancel(self._request_timer)
        _cancel(self._answer_timer)
        if self._is_admitted:
            self._is_admitted = False
            self._limits.release(self._address)
        # uvicorn notifies only the last request; the answers to the others would be written to a closed socket, an
        # error in uvloop
        for cycle in self._cycles:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received data, and limit what the parser buffers or skips silently, such as an endless header."""
        if self._has_failed:
            return
        self._unreported += len(data)
        super().data_received(data)
        if self._unreported > MAX_HEAD and not self._has_failed:
            self._is_too_large = True
            self.send_400_response("")
        # line ends between requests, or the rest of a request that was answered early, would otherwise have no deadline
        if self._request_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_request(self._header_seconds)

    def on_message_begin(self) -> None:
        """Start the deadline for the headers."""
        super().on_message_begin()
        self._is_in_head = True
        self._head = self._fields = self._unreported = self._dropped = 0
        self._expect_request(self._header_seconds)

    def on_url(self, url: bytes) -> None:
        """Count the request line."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header; a trailer is only counted and never treated as a header."""
        self._fields += 1
        self._count_head(len(name) + len(value))
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the deadline for the body, and close the connection if it pipelines too much."""
        super().on_headers_complete()
        self._cycles.append(self.cycle)
        self._expect_request(self._body_seconds)
        self._count_pipelined(self._head)
        self._is_in_head = False
        self._head = self._unreported = 0

    def on_body(self, body: bytes) -> None:
        """Count the body where nothing else does: while its request is pipelined, and after it was answered."""
        self._unreported = max(self._unreported - 9 * len(body), 0)
        self._count_pipelined(len(body))
        if self.cycle.response_complete:
            self._dropped += len(body)
            if self._dropped > MAX_DROPPED:
                self.transport.abort()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the deadline: the request is complete."""
        super().on_message_complete()
        self._unreported = 0
        _cancel(self._request_timer)
        self._request_timer = None

    def send_400_response(self, msg: str) -> None:
        """Refuse an invalid request or one whose headers are too large, and close the connection.

        Pending answers to earlier requests are sent first.
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
        """Start the deadline for the client to resume reading."""
        super().pause_writing()
        self._expect_reader()

    def resume_writing(self) -> None:
        """Stop the deadline: the client has resumed reading."""
        super().resume_writing()
        _cancel(self._answer_timer)

    def on_response_complete(self) -> None:
        """Start the deadline for the client to read the rest of the answer."""
        self._cycles.popleft()
        super().on_response_complete()
        if not self.pipeline:
            self._pipelined = 0
        # a lost connection was already released
        if self._is_admitted and self.transport.get_write_buffer_size():
            self._expect_reader()

    def shutdown(self) -> None:
        """Close the connection unless an answer is pending, even if it has an incomplete request."""
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
