"""The application: routes, and what holds for every one of them: errors as JSON, headers for web pages, bounds, numbers and the log."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from attent.errors import AttentError
from attent.serve.translation.endpoints.libretranslate import LibreTranslateEndpoints
from attent.serve.translation.errors import RequestError
from attent.serve.translation.limits import Gatekeeper
from attent.serve.translation.metrics import Metrics
from attent.serve.translation.service import TranslationService

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

Value = TypeVar("Value")
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Seconds that a browser remembers that it may ask.
MAX_AGE = "1728000"
# Endpoints that machines ask every few seconds: no line of the log.
QUIET = ("/health", "/ready", "/metrics")
Say = Callable[[str], None]


class ClientGoneError(Exception):
    """The client closed its connection before the answer was there."""


def application(service: TranslationService, metrics: Metrics, say: Say = lambda line: None) -> ASGIApp:
    """Build the server's application.

    Args:
        service: translates.
        metrics: counts.
        say: writes a line of the log.
    """
    settings = service.settings
    endpoints = LibreTranslateEndpoints(service, Gatekeeper(settings))

    async def health(request: Request) -> dict[str, Any]:
        return {"status": "ok"}

    async def ready(request: Request) -> Response:
        is_ready = not service.batcher.is_full
        return JSONResponse({"status": "ready" if is_ready else "busy"}, 200 if is_ready else 503)

    async def numbers(request: Request) -> Response:
        token = settings.metrics_token
        if token is not None and not secrets.compare_digest(request.headers.get("authorization", "").encode(), f"Bearer {token}".encode()):
            raise RequestError(401, "Unauthorized", {"WWW-Authenticate": "Bearer"})
        return PlainTextResponse(metrics.text(), media_type=METRICS_TYPE)

    routes = [
        _route("/translate", endpoints.translate, "POST"),
        _route("/detect", endpoints.detect, "POST"),
        _route("/languages", endpoints.languages),
        _route("/frontend/settings", endpoints.frontend_settings),
        _route("/suggest", endpoints.suggest, "POST"),
        _route("/health", health),
        Route("/ready", ready),
        Route("/metrics", numbers),
    ]
    app = Starlette(routes=routes, exception_handlers=dict.fromkeys((AttentError, HTTPException, Exception), _failure))
    app.router.redirect_slashes = False
    return Frame(app, service, metrics, say)


def _route(path: str, answer: Callable[[Request], Coroutine[Any, Any, Any]], method: str = "GET") -> Route:
    """Build a route that answers with JSON, and stops where the client has gone."""

    async def endpoint(request: Request) -> Response:
        value = await _unless_gone(request, answer) if method == "POST" else await answer(request)
        return Response(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"), media_type="application/json")

    return Route(path, endpoint, methods=[method])


async def _unless_gone(request: Request, answer: Callable[[Request], Coroutine[Any, Any, Value]]) -> Value:
    """Return the answer, or stop computing it once the client has closed its connection."""

    async def wait_until_gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    # read whole, so that the next message says that the client has gone
    await request.body()
    task, gone = asyncio.ensure_future(answer(request)), asyncio.ensure_future(wait_until_gone())
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        gone.cancel()
        task.cancel()


class Frame:
    """ASGI middleware around all routes.

    It bounds bodies, ignores a slash at the end of a path, lets the web pages of the settings' origin ask, counts, and writes the log,
    in which no text of a request stands unless the settings say so.

    Args:
        app: the routes.
        service: whose settings hold.
        metrics: counts.
        say: writes a line of the log.
    """

    def __init__(self, app: ASGIApp, service: TranslationService, metrics: Metrics, say: Say) -> None:
        self._app, self._settings, self._metrics, self._say = app, service.settings, metrics, say
        self._headers = {
            "Access-Control-Allow-Origin": self._settings.origin,
            "Access-Control-Allow-Headers": "Authorization, Content-Type",
            "Access-Control-Allow-Methods": "GET, POST",
            "Access-Control-Max-Age": MAX_AGE,
            "X-Content-Type-Options": "nosniff",
        }
        self._paths = {route.path for route in app.routes if isinstance(route, Route)} if isinstance(app, Starlette) else set[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status, size = time.monotonic(), 0, 0
        path = scope["path"].rstrip("/") or "/"
        # a path that nobody serves is counted as one, or strangers could fill the memory with names
        endpoint = path if path in self._paths else "other"

        async def framed_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        async def bounded_receive() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._settings.max_body:
                raise RequestError(413, f"Invalid request: a request may have at most {self._settings.max_body:,} bytes")
            return message

        try:
            if scope["method"] == "OPTIONS":
                await Response(status_code=200)(scope, bounded_receive, framed_send)
            elif (length := Headers(scope=scope).get("content-length", "0")).isdecimal() and int(length[:20]) > self._settings.max_body:
                # nothing is read of what is too large
                error = RequestError(413, f"Invalid request: a request may have at most {self._settings.max_body:,} bytes")
                await _error_response(error)(scope, receive, framed_send)
            else:
                await self._app({**scope, "path": path, "raw_path": path.encode()}, bounded_receive, framed_send)
        except (ClientGoneError, ClientDisconnect):
            status = 499
        finally:
            seconds = time.monotonic() - begin
            self._metrics.requests.labels(endpoint, str(status)).inc()
            self._metrics.latency.labels(endpoint).observe(seconds)
            if self._settings.logs_requests and endpoint not in QUIET:
                self._say(f"{scope['method']} {endpoint} {status} {1000 * seconds:.1f} ms")


async def _failure(request: Request, error: Exception) -> Response:
    """Return the answer to an error; one that nobody expects is named in the log alone."""
    match error:
        case RequestError():
            return _error_response(error)
        case HTTPException():
            return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)
        case AttentError():
            return JSONResponse({"error": f"Invalid request: {error}"}, 400)
        case _:
            return JSONResponse({"error": "Internal Server Error"}, 500)


def _error_response(error: RequestError) -> Response:
    return JSONResponse({"error": error.message}, error.status, headers=error.headers)
