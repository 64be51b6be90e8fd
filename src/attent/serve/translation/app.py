"""The application: routes, and what holds for every one of them: errors as JSON, headers for web pages, bounds, numbers and the log."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from attent.documents import FORMATS
from attent.errors import AttentError
from attent.serve.translation.endpoints.documents import DOWNLOAD, DocumentEndpoints
from attent.serve.translation.endpoints.libretranslate import LibreTranslateEndpoints
from attent.serve.translation.endpoints.openai import OpenAIEndpoints
from attent.serve.translation.endpoints.pages import Pages
from attent.serve.translation.errors import RequestError, as_request_error, error_body
from attent.serve.translation.limits import Gatekeeper
from attent.serve.translation.metrics import Metrics
from attent.serve.translation.service import TranslationService
from attent.serve.translation.translated_files import TranslatedFiles
from attent.serve.web_files import static_file

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

Value = TypeVar("Value")
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Seconds that a browser remembers that it may ask.
MAX_AGE = "1728000"
# Endpoints that machines ask every few seconds: no line of the log.
QUIET = ("/health", "/ready", "/metrics")
# Endpoints whose texts go to the queue at once; documents wait for room there.
QUEUED = ("/translate", "/v1/translations")
# Pages, whose links are relative to their address.
PAGES = ("/", "/docs")
Say = Callable[[str], None]
# Takes in the whole body of a request.
Read = Callable[[Request], Coroutine[Any, Any, object]]


class ClientGoneError(Exception):
    """The client closed its connection before the answer was there."""


def application(
    service: TranslationService, metrics: Metrics, say: Say = lambda line: None, files: TranslatedFiles | None = None
) -> ASGIApp:
    """Build the server's application.

    Args:
        service: translates.
        metrics: counts.
        say: writes a line of the log.
        files: holds translated documents; of the application's own unless given.
    """
    settings = service.settings
    endpoints = LibreTranslateEndpoints(service, Gatekeeper(settings), tuple(FORMATS) if settings.has_files else ())
    documents = DocumentEndpoints(service, files or TranslatedFiles(settings.file_lifetime), endpoints.admit)
    openai, pages = OpenAIEndpoints(service, endpoints.admit), Pages(settings)

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
        _route("/translate_file", documents.translate_file, "POST", documents.read),
        _route(f"{DOWNLOAD}/{{name}}", documents.download),
        _route("/v1/translations", openai.translations, "POST"),
        _route("/v1/models", openai.models),
        _route("/health", health),
        Route("/ready", ready),
        Route("/metrics", numbers),
        _route("/spec", pages.spec),
        Route("/docs", pages.docs),
        Route("/", pages.index),
        Route("/web/{name:str}", static_file),
    ]
    app = Starlette(routes=routes, exception_handlers=dict.fromkeys((AttentError, HTTPException, Exception), _failure))
    app.router.redirect_slashes = False
    return Frame(app, service, metrics, say)


def _route(path: str, answer: Callable[[Request], Coroutine[Any, Any, Any]], method: str = "GET", read: Read = Request.body) -> Route:
    """Build a route that answers with JSON, or with events, and stops where the client has gone."""

    async def endpoint(request: Request) -> Response:
        value = await _unless_gone(request, answer, read) if method == "POST" else await answer(request)
        if isinstance(value, Response):
            return value
        return Response(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"), media_type="application/json")

    return Route(path, endpoint, methods=[method])


async def _unless_gone(request: Request, answer: Callable[[Request], Coroutine[Any, Any, Value]], read: Read) -> Value:
    """Return the answer, or stop computing it once the client has closed its connection."""
    # read whole, so that the next message says that the client has gone
    await read(request)
    answering, is_gone = asyncio.current_task(), False
    assert answering is not None

    async def cancel_once_gone() -> None:
        nonlocal is_gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        is_gone = True
        answering.cancel()

    watching = asyncio.create_task(cancel_once_gone())
    try:
        return await answer(request)
    except asyncio.CancelledError:
        if not is_gone:
            raise
        answering.uncancel()
        raise ClientGoneError from None
    finally:
        watching.cancel()


class Frame:
    """ASGI middleware around all routes.

    It refuses translations while the queue is full, bounds bodies, ignores a slash at the end of a path but of a page's, lets the web
    pages of the settings' origin ask, counts, and writes the log, in which no text of a request stands unless the settings say so.

    Args:
        app: the routes.
        service: whose settings hold.
        metrics: counts.
        say: writes a line of the log.
    """

    def __init__(self, app: ASGIApp, service: TranslationService, metrics: Metrics, say: Say) -> None:
        self.app, self._settings, self._batcher, self._metrics, self._say = app, service.settings, service.batcher, metrics, say
        headers = {
            "Access-Control-Allow-Origin": self._settings.origin,
            "Access-Control-Allow-Headers": "Authorization, Content-Type",
            "Access-Control-Allow-Methods": "GET, POST",
            "Access-Control-Max-Age": MAX_AGE,
            "X-Content-Type-Options": "nosniff",
        }
        # no answer has one of these before
        self._headers = Headers(headers).raw
        self._paths = {route.path for route in app.routes if isinstance(route, Route)} if isinstance(app, Starlette) else set[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status, size = time.monotonic(), 0, 0
        path = scope["path"].rstrip("/") or "/"
        # a path that nobody serves is counted as one, or strangers could fill the memory with names
        template = f"{path.rpartition('/')[0]}/{{name}}"
        endpoint = path if path in self._paths else template if template in self._paths else "other"

        async def framed_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *self._headers]
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
            elif endpoint in PAGES and (slashes := len(scope["path"]) - len(path)):
                # relative too: a proxy may serve the page below a path of its own
                address = "../" * slashes + path.rpartition("/")[2]
                await RedirectResponse(address)(scope, bounded_receive, framed_send)
            elif _content_length(scope) > self._settings.max_body:
                # nothing is read of what is too large
                error = RequestError(413, f"Invalid request: a request may have at most {self._settings.max_body:,} bytes")
                await _error_response(path, error)(scope, receive, framed_send)
            elif endpoint in QUEUED and scope["method"] == "POST" and self._batcher.is_full:
                # nothing is read either of what finds no room
                await _error_response(path, self._batcher.refusal())(scope, receive, framed_send)
            else:
                await self.app({**scope, "path": path, "raw_path": path.encode()}, bounded_receive, framed_send)
        except (ClientGoneError, ClientDisconnect):
            status = 499
        finally:
            seconds = time.monotonic() - begin
            self._metrics.observe_request(endpoint, status, seconds)
            if self._settings.logs_requests and endpoint not in QUIET:
                self._say(f"{scope['method']} {endpoint} {status} {1000 * seconds:.1f} ms")


def _content_length(scope: Scope) -> int:
    """Return the bytes of a body as the client says; 0 if it does not say so."""
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(length[:20]) if length.isdigit() else 0


async def _failure(request: Request, error: Exception) -> Response:
    return _error_response(request.url.path, as_request_error(error))


def _error_response(path: str, error: RequestError) -> Response:
    return JSONResponse(error_body(path, error), error.status, headers=error.headers)
