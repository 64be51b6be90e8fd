"""The server's ASGI application: its routes and everything that they share.

They share JSON errors, headers for web pages, size limits, metrics and the log.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from attent.errors import AttentError
from attent.server.body import query_parameters, receive_body
from attent.server.documents import DOWNLOAD, DocumentEndpoints
from attent.server.endpoints import TextEndpoints
from attent.server.errors import RequestError, as_request_error, busy, stopped
from attent.server.limits import AddressLimits, Gatekeeper
from attent.server.service import TranslationService
from attent.server.settings import SPARE
from attent.server.specification import specification
from attent.server.translated_files import TranslatedFiles
from attent.views.pages.page import web_file
from attent.web import static_file

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
Value = TypeVar("Value")
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Seconds for which a browser may cache the answer to a preflight request.
MAX_AGE = "1728000"
# Endpoints that monitoring polls every few seconds; they are not logged.
QUIET = ("/health", "/ready", "/metrics")
# The endpoint of texts queues all of them together; documents wait for room in the queue.
TEXTS, DOCUMENT, DETECT = "/translate", "/translate_file", "/detect"
# Maximum characters of a path.
MAX_PATH = 2_000
# The page; its links are relative to its address.
PAGE = "/"
# The page runs only its own scripts, calls only its own server, and cannot be embedded in another page.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
    "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
Say = Callable[[str], None]
# Reads the whole body of a request.
Read = Callable[[Request], Coroutine[Any, Any, object]]


class Metrics:
    """The server's metrics for Prometheus.

    Args:
        running: returns the number of sentences being translated.
        waiting: returns the number of sentences in the queue.
        loads: returns how often a run was loaded.
        loaded: returns the number of runs in memory.
    """

    def __init__(
        self,
        running: Callable[[], float],
        waiting: Callable[[], float],
        loads: Callable[[], float] = lambda: 0,
        loaded: Callable[[], float] = lambda: 0,
    ) -> None:
        self._registry = registry = CollectorRegistry()
        requests = Counter(
            "attent_requests", "Requests by endpoint and status.", ("endpoint", "status"), registry=registry
        )
        latency = Histogram(
            "attent_request_seconds",
            "Seconds from request to answer.",
            ("endpoint",),
            registry=registry,
            buckets=SECONDS,
        )
        # one for each endpoint and status; prometheus_client takes as long to look one up as to count
        self._requests = cache(lambda endpoint, status: requests.labels(endpoint, str(status)))
        self._latency = cache(latency.labels)
        self._characters = Counter("attent_characters", "Characters of translated texts.", registry=registry)
        sentences = Counter(
            "attent_sentences", "Translated sentences by languages.", ("source", "target"), registry=registry
        )
        self._sentences = cache(sentences.labels)
        self._batch = Histogram("attent_batch_sentences", "Sentences of a batch.", registry=registry, buckets=SIZES)
        self._batch_seconds = Histogram(
            "attent_batch_seconds", "Seconds of a batch.", registry=registry, buckets=SECONDS
        )
        self._wait = Histogram(
            "attent_queue_seconds", "Longest wait of a batch's sentences.", registry=registry, buckets=SECONDS
        )
        for name, description, function in (
            ("running_sentences", "Sentences that are translated now.", running),
            ("waiting_sentences", "Sentences that wait.", waiting),
            ("loads", "Number of times that a run was loaded.", loads),
            ("loaded_runs", "Runs in memory.", loaded),
        ):
            Gauge(f"attent_{name}", description, registry=registry).set_function(function)

    def observe_request(self, endpoint: str, status: int, seconds: float) -> None:
        """Count a request by endpoint and status, and record how many seconds it took."""
        self._requests(endpoint, status).inc()
        self._latency(endpoint).observe(seconds)

    def observe_batch(
        self, languages: tuple[str, str], sentences: int, characters: int, seconds: float, wait: float
    ) -> None:
        """Count a batch's sentences and characters, and record its seconds and the longest wait of its sentences."""
        self._sentences(*languages).inc(sentences)
        self._characters.inc(characters)
        self._batch.observe(sentences)
        self._batch_seconds.observe(seconds)
        self._wait.observe(wait)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class ClientGoneError(Exception):
    """The client closed its connection before the answer was ready."""


def application(
    service: TranslationService, metrics: Metrics, say: Say = lambda line: None, files: TranslatedFiles | None = None
) -> ASGIApp:
    """Build the server's application.

    Args:
        service: the service that translates.
        metrics: the server's metrics.
        say: writes a line to the log.
        files: the store of translated documents; a new one by default.
    """
    settings = service.settings
    gatekeeper = Gatekeeper(settings)
    endpoints, description = TextEndpoints(service, gatekeeper), specification(settings)
    documents = DocumentEndpoints(service, files or TranslatedFiles(settings.file_lifetime), gatekeeper)

    async def read(request: Request) -> None:
        # a request with a wrong key is refused before its body is read
        gatekeeper.check_key(request, query_parameters(request, settings))
        await (documents.read(request) if request.url.path == DOCUMENT else receive_body(request, settings))

    async def health(request: Request) -> dict[str, Any]:
        return {"status": "ok"}

    async def ready(request: Request) -> Response:
        is_ready = not service.batcher.is_full
        pairs = {f"{entry.source}-{entry.target}": entry.run is not None for entry in service.catalog.entries}
        return JSONResponse({"status": "ready" if is_ready else "busy", "loaded": pairs}, 200 if is_ready else 503)

    async def numbers(request: Request) -> Response:
        token = settings.metrics_auth_token
        if token is not None and not secrets.compare_digest(
            request.headers.get("authorization", "").encode(), f"Bearer {token}".encode()
        ):
            raise RequestError(401, "Unauthorized", {"WWW-Authenticate": "Bearer"})
        return PlainTextResponse(metrics.text(), media_type=METRICS_TYPE)

    async def spec(request: Request) -> Mapping[str, Any]:
        return description

    async def page(request: Request) -> Response:
        return HTMLResponse(web_file("translate.html"), headers=PAGE_HEADERS)

    routes = [
        _route(TEXTS, endpoints.translate, read),
        _route(DETECT, endpoints.detect, read),
        _route("/languages", endpoints.languages),
        _route("/frontend/settings", endpoints.frontend_settings),
        _route("/suggest", endpoints.suggest, method="POST"),
        _route(DOCUMENT, documents.translate_file, read),
        _route(f"{DOWNLOAD}/{{name}}", documents.download),
        _route("/health", health),
        Route("/ready", ready),
        Route("/metrics", numbers),
        _route("/spec", spec),
        Route("/", page),
        Route("/web/{name:str}", static_file),
    ]
    app = Starlette(routes=routes, exception_handlers=dict.fromkeys((AttentError, HTTPException, Exception), _failure))
    app.router.redirect_slashes = False
    return Frame(app, service, gatekeeper, metrics, say)


def _route(
    path: str, answer: Callable[[Request], Coroutine[Any, Any, Any]], read: Read | None = None, method: str = "GET"
) -> Route:
    """Build a route that answers with JSON or with server-sent events.

    With `read`, the route is a POST that reads a body and is canceled when the client disconnects.
    """

    async def endpoint(request: Request) -> Response:
        value = await answer(request) if read is None else await _unless_gone(request, answer, read)
        if isinstance(value, Response):
            return value
        return Response(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"), media_type="application/json")

    return Route(path, endpoint, methods=[method if read is None else "POST"])


async def _unless_gone(request: Request, answer: Callable[[Request], Coroutine[Any, Any, Value]], read: Read) -> Value:
    """Return the answer, or stop computing it once the client has closed its connection."""
    # read the whole body, so that the next message can only be a disconnect
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

    It refuses translations while the queue is full, limits the size of each body and of all pending bodies together,
    ignores a trailing slash in paths other than pages, sets the CORS headers, counts requests, and logs them without
    their texts.

    Args:
        app: the routes.
        service: the service, with the settings and the queue.
        gatekeeper: determines the addresses of clients.
        metrics: the server's metrics.
        say: writes a line to the log.
    """

    def __init__(
        self, app: ASGIApp, service: TranslationService, gatekeeper: Gatekeeper, metrics: Metrics, say: Say
    ) -> None:
        self.app, self._settings, self._batcher, self._metrics, self._say = (
            app,
            service.settings,
            service.batcher,
            metrics,
            say,
        )
        settings, self._gatekeeper = service.settings, gatekeeper
        text, texts = settings.max_text + SPARE, settings.max_texts
        self._bounds = {TEXTS: texts, DETECT: text} | (
            {DOCUMENT: settings.max_document} if not settings.disable_files_translation else {}
        )
        # the largest body must always fit if no other is pending
        largest = max(self._bounds.values())
        limits = max(settings.body_limit, largest), max(settings.address_body_limit, largest)
        self._bodies = AddressLimits(*limits, settings.trusted_proxy)
        headers = {
            "Access-Control-Allow-Origin": self._settings.allow_origin,
            "Access-Control-Allow-Headers": "Authorization, Content-Type",
            "Access-Control-Allow-Methods": "GET, POST",
            "Access-Control-Max-Age": MAX_AGE,
            "X-Content-Type-Options": "nosniff",
        }
        # no answer sets any of these itself
        self._headers = Headers(headers).raw
        self._paths = (
            {route.path for route in app.routes if isinstance(route, Route)}
            if isinstance(app, Starlette)
            else set[str]()
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status, size, admitted, address = time.monotonic(), 0, 0, 0, ""
        path = scope["path"].rstrip("/") or "/"
        # all unknown paths are counted as one: counting each could exhaust the memory
        template = f"{path.rpartition('/')[0]}/{{name}}"
        endpoint = path if path in self._paths else template if template in self._paths else "other"
        max_body = self._bounds.get(path, SPARE)

        async def framed_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *self._headers]
            await send(message)

        async def bounded_receive() -> Message:
            nonlocal size, admitted, address
            message = await receive()
            amount = len(message.get("body", b""))
            size += amount
            if size > max_body:
                raise _too_large(max_body)
            # the first bytes of each body are not counted, as the number of connections bounds them: a short request
            # always fits beside long ones
            if (amount := min(amount, size - SPARE)) > 0:
                address = address or self._gatekeeper.address(Request(scope))
                if not self._bodies.admit(address, amount):
                    raise busy(1)
                admitted += amount
            return message

        try:
            if scope["method"] == "OPTIONS":
                await Response(status_code=200)(scope, bounded_receive, framed_send)
            elif len(scope["path"]) > MAX_PATH:
                error = RequestError(414, f"Invalid request: a path may have at most {MAX_PATH:,} characters")
                await _error_response(error)(scope, receive, framed_send)
            elif endpoint == PAGE and (slashes := len(scope["path"]) - len(path)):
                # relative as well: a proxy may serve the page below a prefix
                target = "../" * slashes + path.rpartition("/")[2]
                await RedirectResponse(target)(scope, bounded_receive, framed_send)
            elif _content_length(scope) > max_body:
                # a body that is too large is not read
                await _error_response(_too_large(max_body))(scope, receive, framed_send)
            elif endpoint == TEXTS and scope["method"] == "POST" and self._batcher.is_full:
                # nor is a body that arrives while the queue is full
                await _error_response(self._batcher.refusal())(scope, receive, framed_send)
            else:
                await self.app({**scope, "path": path, "raw_path": path.encode()}, bounded_receive, framed_send)
        except (ClientGoneError, ClientDisconnect):
            status = 499
        except asyncio.CancelledError:
            # uvicorn cancels requests some time after SIGTERM and would log the exception
            if not status:
                await _error_response(stopped())(scope, receive, framed_send)
        finally:
            if admitted:
                self._bodies.release(address, admitted)
            seconds = time.monotonic() - begin
            self._metrics.observe_request(endpoint, status, seconds)
            if self._settings.log_requests and endpoint not in QUIET:
                self._say(f"{scope['method']} {endpoint} {status} {1000 * seconds:.1f} ms")


def _too_large(max_body: int) -> RequestError:
    return RequestError(413, f"Invalid request: a request may have at most {max_body:,} bytes")


def _content_length(scope: Scope) -> int:
    """Return the body's size in bytes according to its Content-Length header; 0 without a valid one."""
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(length[:20]) if length.isdigit() else 0


async def _failure(request: Request, error: Exception) -> Response:
    return _error_response(as_request_error(error))


def _error_response(error: RequestError) -> Response:
    return JSONResponse({"error": error.message}, error.status, headers=error.headers)
