"""The routes of the server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from attent.errors import AttentError
from attent.explorer.explorer import Explorer
from attent.explorer.requests import (
    ColumnRequest,
    ExampleRequest,
    HeadRequest,
    RowRequest,
    SummaryRequest,
    TextRequest,
    TileRequest,
    TranslateRequest,
)
from attent.explorer.scheduler import ClosedError
from attent.explorer.security import Guard, refusal
from attent.views.pages.page import web_file
from attent.web_files import static_file

# Threads that wait for the scheduler; each needs some memory of its own.
THREADS = 2
# The header that describes the numbers in the body.
REGION_HEADER = "x-attent-part"
Query = TypeVar("Query", bound=BaseModel)
Answer = TypeVar("Answer")
EXAMPLE_OR_TEXT: TypeAdapter[TextRequest | ExampleRequest] = TypeAdapter(TextRequest | ExampleRequest)


def application(explorer: Explorer, *, hosts: frozenset[str], token: str) -> Guard:
    """Build the server's application.

    Args:
        explorer: computes the answers.
        hosts: the names and addresses of this server, each with its port.
        token: the secret that requests must bring.
    """
    regions: dict[str, type[HeadRequest]] = {
        "row": RowRequest,
        "column": ColumnRequest,
        "tile": TileRequest,
        "thumbnail": HeadRequest,
    }
    scene = "/api/scenes/{scene:str}"
    routes = [
        Route("/", _index_page),
        Route("/web/{name:str}", static_file),
        _route("/api/about", lambda request, body: _json(explorer.describe())),
        _route(scene, lambda request, body: _json(explorer.scenes[_scene_number(request)].describe())),
        _route(
            f"{scene}/summary",
            lambda request, body: _json(
                explorer.group_statistics(_scene_number(request), _query(request, SummaryRequest).group)
            ),
        ),
        *(_route(f"{scene}/{name}", partial(_map_region, explorer, kind)) for name, kind in regions.items()),
        _route(f"{scene}/picture", lambda request, body: _binary(explorer.pixels(_scene_number(request)))),
        Route("/api/translate", partial(_stream_steps, explorer.translate), methods=["POST"]),
        Route("/api/generate", partial(_stream_steps, explorer.generate), methods=["POST"]),
        _route("/api/fill", lambda request, body: _json(explorer.fill(TextRequest.model_validate_json(body))), "POST"),
        _route(
            "/api/classify", lambda request, body: _json(explorer.classify(EXAMPLE_OR_TEXT.validate_json(body))), "POST"
        ),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers=dict.fromkeys((AttentError, ValidationError, HTTPException, Exception), _failure),
    )
    # of this server alone: other servers run in other event loops, which cannot share waiting threads
    app.state.threads = CapacityLimiter(THREADS)
    return Guard(app, hosts=hosts, token=token)


def _route(path: str, answer: Callable[[Request, bytes], Response], method: str = "GET") -> Route:
    """Build a route whose response is computed in a thread, from the request and its body."""

    async def endpoint(request: Request) -> Response:
        body = await request.body() if method == "POST" else b""
        return await _in_thread(request, answer, request, body)

    return Route(path, endpoint, methods=[method])


async def _in_thread(request: Request, compute: Callable[..., Answer], *arguments: Any) -> Answer:
    return await to_thread.run_sync(partial(compute, *arguments), limiter=request.app.state.threads)


async def _index_page(request: Request) -> Response:
    return HTMLResponse(web_file("explore.html"))


def _map_region(explorer: Explorer, request_type: type[HeadRequest], request: Request, body: bytes) -> Response:
    """Send numbers as little-endian 32-bit floats, row by row."""
    region = explorer.region(_scene_number(request), _query(request, request_type))
    height, width = region.values.shape
    header = json.dumps({"height": height, "width": width, "exact": region.is_exact, "note": region.note})
    return _binary(region.values.contiguous().numpy().astype("<f4").tobytes(), {REGION_HEADER: header})


def _binary(content: bytes, headers: dict[str, str] | None = None) -> Response:
    return Response(content, media_type="application/octet-stream", headers=headers)


async def _stream_steps(
    answer: Callable[[TranslateRequest], Iterator[dict[str, Any]]], request: Request
) -> StreamingResponse:
    """Send server-sent events, each a JSON object; an error after the first event is the last event."""
    events = answer(TranslateRequest.model_validate_json(await request.body()))
    # before the response begins, so that a wrong request gets an error status
    first = await _in_thread(request, lambda: next(events, None))
    assert first is not None
    return StreamingResponse(_server_sent_events(request, first, events), media_type="text/event-stream")


async def _server_sent_events(
    request: Request, first_event: dict[str, Any], events: Iterator[dict[str, Any]]
) -> AsyncIterator[bytes]:
    event: dict[str, Any] | None = first_event
    while event is not None:
        yield b"data: " + _json_bytes(event) + b"\n\n"
        try:
            event = await _in_thread(request, lambda: next(events, None)) if event["kind"] != "error" else None
        # the status was sent already, so that only an event can report a failure
        except Exception as error:
            event = {"kind": "error", "error": _error_message(error)}


def _json_bytes(value: Any) -> bytes:
    """Encode as JSON; a lone surrogate, which a token may be cut to, becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def _json(value: Any) -> Response:
    return Response(_json_bytes(value), media_type="application/json")


def _scene_number(request: Request) -> int:
    scene = request.path_params["scene"]
    # int() refuses very long numbers, and no scene has one
    if not scene.isdecimal() or len(scene) > 9:
        raise HTTPException(404)
    return int(scene)


def _query(request: Request, kind: type[Query]) -> Query:
    """Parse the query string."""
    return kind.model_validate(dict(request.query_params))


async def _failure(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return refusal(error.status_code, error.detail)
    if isinstance(error, ClosedError):
        return refusal(503, _error_message(error))
    return refusal(400 if isinstance(error, AttentError | ValidationError) else 500, _error_message(error))


def _error_message(error: Exception) -> str:
    match error:
        case AttentError():
            return str(error)
        case ValidationError():
            first = error.errors(include_url=False, include_input=False)[0]
            return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
        case _:
            return f"unexpected {type(error).__name__}: {error}"
