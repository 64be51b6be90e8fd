"""Connections that must send a whole request in time, lest slow ones be held for ever."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds from the first byte of a request, or from the beginning of a connection, until the request is whole.
LIMIT = 10.0


class TimedProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn has it, whose connections close where a request is not whole in time or the server ends."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(LIMIT, transport.close)

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a request until it is whole."""
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_waiting()
        elif self._timer is None:
            self._timer = self.loop.call_later(LIMIT, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close where nothing is being answered, a request that is not whole included."""
        super().shutdown()
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.close()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
