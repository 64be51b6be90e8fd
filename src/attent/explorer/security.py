"""Access control: only the page of this server, in the browser of the person who started it, gets answers.

Any web page can make its reader's browser send requests to this machine, and any host name can be made to resolve to
it. Therefore the Host header must name this server (against DNS rebinding), an Origin header, if sent, must name it too
(against cross-site requests), and every call of the API needs a token that is new at every start, in a header that
pages of other sites cannot send. Slow requests are cut off.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

import h11
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from attent.errors import shortened

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER = "x-attent-token"
API = "/api/"
# Maximum bytes of a request's body.
MAX_BODY = 2**20
# Seconds from the start of a connection, or from the first byte of a request, until the request is complete.
REQUEST_TIMEOUT = 10.0
# Restrictions on the page: it loads nothing from other servers and cannot be embedded in another page.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Guard:
    """ASGI middleware that refuses unauthorized requests.

    Args:
        app: the application that answers all other requests; it must turn Starlette's HTTPException, raised for too
            large a body, into a response.
        hosts: the names and addresses of this server, each with its port.
        token: the secret created at this start, required for every call of the API.
        max_body: maximum bytes of a request's body.
    """

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str], token: str, max_body: int = MAX_BODY) -> None:
        self.app, self.hosts, self.token, self.max_body = app, hosts, token, max_body
        self._too_large = 413, f"a request may have at most {max_body:,} bytes"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or refuse it with the reason."""
        if scope["type"] != "http":
            return
        size, is_complete = 0, False

        async def secure_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        async def bounded_receive() -> Message:
            nonlocal size, is_complete
            message = await receive()
            if message["type"] == "http.disconnect" and not is_complete:
                raise HTTPException(408, "the body did not arrive in time")
            size, is_complete = size + len(message.get("body", b"")), not message.get("more_body", False)
            if size > self.max_body:
                raise HTTPException(*self._too_large)
            return message

        reason = self.refusal_reason(scope["method"], scope["path"], Headers(scope=scope))
        await (
            self.app(scope, bounded_receive, secure_send)
            if reason is None
            else refusal(*reason)(scope, receive, secure_send)
        )

    def refusal_reason(self, method: str, path: str, headers: Headers) -> tuple[int, str] | None:
        """Return the status and the reason for refusing a request; None if it is allowed."""
        host, origin = headers.getlist("host"), headers.get("origin")
        if len(host) != 1 or host[0].lower() not in self.hosts:
            return 421, f"this server is not called {', '.join(host)}"
        if origin is not None and origin.lower() not in {f"http://{name}" for name in self.hosts}:
            return 403, f"pages of {origin} may not call this server"
        # browsers set these headers themselves; any site may link to the page, which holds no secret
        is_link = method == "GET" and path == "/" and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not is_link:
            return 403, "pages of another site may not call this server"
        if path.startswith(API) and not secrets.compare_digest(
            headers.get(TOKEN_HEADER, "").encode(), self.token.encode()
        ):
            return 403, "the token is missing or from an earlier start: open the address that attent printed"
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            return 400, f"the length of the body must be a number, got {length[:20]!r}"
        if int(length[:20]) > self.max_body:
            return self._too_large
        if method == "POST" and headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return 415, "the body must be application/json"
        return None


def refusal(status: int, reason: str) -> JSONResponse:
    """Return a response with the reason for a refusal."""
    return JSONResponse({"error": shortened(reason)}, status)


class DeadlineProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol based on h11, which limits headers.

    It closes connections whose request is late, and all connections when the server shuts down.
    """

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Start the deadline for the first request."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(REQUEST_TIMEOUT, transport.close)

    def data_received(self, data: bytes) -> None:
        """Stop the deadline once the request is complete."""
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_clock()
        elif self._timer is None:
            self._timer = self.loop.call_later(REQUEST_TIMEOUT, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadline."""
        self._stop_clock()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close the connection unless an answer is pending, even if it has an incomplete request."""
        super().shutdown()
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.close()

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
