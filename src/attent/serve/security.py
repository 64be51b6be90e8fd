"""Who may call: pages that this server gave, in the browser of whoever started it, and nobody else.

A page of another site can make a reader's browser ask this machine for anything, and a name that it owns can be made to mean this machine.
So the host that is asked for must be ours (against DNS rebinding), an origin if one is told must be ours too (against cross-site
requests), and whatever computes asks for a token that is new at every start, in a header that no other site's page can send unasked.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN = "x-attent-token"
API = "/api/"
# Bytes of a request's body.
MOST = 2**20
# What answers allow a page to do: nothing comes from anywhere else, and nobody may show it within a page of theirs.
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
    """An application that asks before another is asked.

    Args:
        app: what answers those who may call, and Starlette's HTTPException where a body grows too large.
        hosts: the names and addresses, each with its port, by which browsers may ask.
        token: what calls of the interface must know.
        most: bytes of a body.
    """

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str], token: str, most: int = MOST) -> None:
        self.app, self.hosts, self.token, self.most = app, hosts, token, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse with the reason."""
        if scope["type"] != "http":
            return
        read, whole = 0, False

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        async def counted() -> Message:
            nonlocal read, whole
            message = await receive()
            if message["type"] == "http.disconnect" and not whole:
                raise HTTPException(408, "the body did not come")
            read, whole = read + len(message.get("body", b"")), not message.get("more_body", False)
            if read > self.most:
                raise HTTPException(*self._too_large())
            return message

        refused = self.refused(scope["method"], scope["path"], Headers(scope=scope))
        await (self.app(scope, counted, answer) if refused is None else refusal(*refused)(scope, receive, answer))

    def refused(self, method: str, path: str, headers: Headers) -> tuple[int, str] | None:
        """The status and the reason of a request that is not answered; None for one that is."""
        host, origin = headers.getlist("host"), headers.get("origin")
        if len(host) != 1 or host[0].lower() not in self.hosts:
            return 421, f"this server is not called {', '.join(host)}"
        if origin is not None and origin.lower() not in {f"http://{name}" for name in self.hosts}:
            return 403, f"pages of {origin} may not call this server"
        # what browsers say of a request by themselves; a link to the page, which knows nothing by itself, may stand anywhere
        linked = method == "GET" and path == "/" and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not linked:
            return 403, "pages of another site may not call this server"
        if path.startswith(API) and not secrets.compare_digest(headers.get(TOKEN, "").encode(), self.token.encode()):
            return 403, "the token is missing or of an earlier start: open the address that attent printed"
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            return 400, f"the length of the body must be a number, got {length[:20]!r}"
        if int(length[:20]) > self.most:
            return self._too_large()
        if method == "POST" and headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return 415, "the body must be application/json"
        return None

    def _too_large(self) -> tuple[int, str]:
        return 413, f"a request may have at most {self.most:,} bytes"


def refusal(status: int, reason: str) -> JSONResponse:
    """An answer that says why there is none."""
    return JSONResponse({"error": reason}, status)
