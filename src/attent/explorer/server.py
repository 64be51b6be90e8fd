"""The server of `attent explore` and `attent.explore`."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar

import uvicorn
from anyio import CapacityLimiter, to_thread
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from torch import Tensor

from attent.attention.maps.attention_map import AttentionMap, LabelledMap
from attent.errors import ArgumentError, AttentError
from attent.explorer.explorer import (
    ColumnRequest,
    ExampleRequest,
    Explorer,
    HeadRequest,
    RowRequest,
    SummaryRequest,
    TextRequest,
    TileRequest,
    TranslateRequest,
)
from attent.explorer.scheduler import ClosedError
from attent.explorer.security import DeadlineProtocol, Guard, refusal
from attent.views.build_scene import build_scene
from attent.views.pages.page import web_file
from attent.views.scene import Scene
from attent.web import listen, static_file

HOST, PORT = "127.0.0.1", 8765
# Seconds within which a server must start.
START_TIMEOUT = 30.0
# Threads that wait for the scheduler; each takes some memory.
THREADS = 2
# The header that describes the numbers in the body.
REGION_HEADER = "x-attent-part"
Query = TypeVar("Query", bound=BaseModel)
Answer = TypeVar("Answer")
EXAMPLE_OR_TEXT: TypeAdapter[TextRequest | ExampleRequest] = TypeAdapter(TextRequest | ExampleRequest)


def explore(
    maps: Mapping[str, AttentionMap | Tensor] | Mapping[str, LabelledMap] | AttentionMap | Tensor | Scene,
    tokens: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    *,
    title: str = "",
    sequence: int = 0,
    port: int = 0,
) -> ExploreServer:
    """Explore the attention of any model, at any length, in a browser on this machine.

    Weights are computed when the page shows them. The server runs in the background of this process until it is closed.

    Example:
        >>> with attent.watch(model) as seen:
        ...     model(**inputs)
        >>> print(attent.explore(seen, tokens).address)

    Args:
        maps: attention maps by the paths of their modules, a single map, or a scene.
        tokens: labels of the input text; numbers by default.
        targets: labels of the decoder's text.
        title: the title of the page.
        sequence: the index of the sequence in the batch, from 0.
        port: the port to listen on; a free one by default.

    Raises:
        ArgumentError: there is nothing to show, or the port is in use.
        ShapeError: the labels fit none of the maps.
    """
    scene = maps if isinstance(maps, Scene) else build_scene(maps, tokens, targets, title=title, sequence=sequence)
    return ExploreServer(Explorer(scenes=[scene]), port=port)


class ExploreServer:
    """A local server, reachable only from this machine.

    Args:
        explorer: computes the answers.
        port: the port to listen on; 0 for a free one.

    Raises:
        ArgumentError: the server cannot listen there.
    """

    def __init__(self, explorer: Explorer, *, port: int = PORT) -> None:
        self.explorer, self.token = explorer, secrets.token_urlsafe(24)
        self._socket = listen(HOST, port)
        self.port = self._socket.getsockname()[1]
        names = [f"{name}:{self.port}" for name in (HOST, "localhost", "[::1]")]
        # browsers omit HTTP's default port
        hosts = frozenset(name for full in names for name in (full, full.removesuffix(":80")))
        settings = uvicorn.Config(
            application(explorer, hosts=hosts, token=self.token),
            log_level="error", access_log=False, lifespan="off", ws="none", http=DeadlineProtocol, loop="asyncio",
            server_header=False,
        )  # fmt: skip
        self._server, self._has_ended = uvicorn.Server(settings), threading.Event()
        # uvicorn handles signals in the main thread only
        self._thread = threading.Thread(target=self._serve, name="attent-explore", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + START_TIMEOUT
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise ArgumentError(f"the server at port {self.port} did not start")
            time.sleep(0.01)

    @property
    def address(self) -> str:
        """The URL to open in a browser. Its fragment, which browsers do not send to the server, contains the token."""
        return f"http://{HOST}:{self.port}/#{self.token}"

    def wait(self) -> None:
        """Wait until the server is closed or interrupted by Ctrl-C."""
        # do not join the thread: after an interrupt Python 3.11 considers it ended (bpo-45274)
        while not self._has_ended.wait(0.5):
            pass

    def close(self, seconds: float | None = None) -> bool:
        """Stop the server once the running computation has ended.

        Args:
            seconds: the longest time to wait for it; no limit by default.

        Returns:
            True if no computation is running any more.
        """
        self._server.should_exit = True
        self.explorer.close()
        if not self._has_ended.wait(seconds):
            return False
        self._thread.join()
        self._socket.close()
        return True

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._has_ended.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ExploreServer({self.address})"

    def _repr_html_(self) -> str:
        return f'<a href="{self.address}" target="_blank" rel="noopener">{self.address}</a>'


def application(explorer: Explorer, *, hosts: frozenset[str], token: str) -> Guard:
    """Build the server's application.

    Args:
        explorer: computes the answers.
        hosts: the names and addresses of this server, each with its port.
        token: the secret that requests must contain.
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
    # for this server only: other servers run in other event loops, which cannot share this limiter
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
    """Return a response with the numbers as little-endian 32-bit floats, row by row."""
    region = explorer.region(_scene_number(request), _query(request, request_type))
    height, width = region.values.shape
    header = json.dumps({"height": height, "width": width, "exact": region.is_exact, "note": region.note})
    return _binary(region.values.contiguous().numpy().astype("<f4").tobytes(), {REGION_HEADER: header})


def _binary(content: bytes, headers: dict[str, str] | None = None) -> Response:
    return Response(content, media_type="application/octet-stream", headers=headers)


async def _stream_steps(
    answer: Callable[[TranslateRequest], Iterator[dict[str, Any]]], request: Request
) -> StreamingResponse:
    """Return a stream of server-sent events, one JSON object each; a later error is sent as the last event."""
    events = answer(TranslateRequest.model_validate_json(await request.body()))
    # before the response begins, so that an invalid request gets an error status
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
        # the status was already sent, so only an event can report a failure
        except Exception as error:
            event = {"kind": "error", "error": _error_message(error)}


def _json_bytes(value: Any) -> bytes:
    """Encode a value as JSON; a lone surrogate, which a truncated token may end in, becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def _json(value: Any) -> Response:
    return Response(_json_bytes(value), media_type="application/json")


def _scene_number(request: Request) -> int:
    scene = request.path_params["scene"]
    # int() refuses very long numbers, and no scene has such a number
    if not scene.isdecimal() or len(scene) > 9:
        raise HTTPException(404)
    return int(scene)


def _query(request: Request, kind: type[Query]) -> Query:
    """Parse the query string into a request."""
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
