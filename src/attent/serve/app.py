"""The routes: what is asked for at which address."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from importlib.resources import files
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from attent.errors import AttentError
from attent.serve.explorer import Explorer
from attent.serve.requests import Column, Example, Row, Summary, Text, TileOf, Translate, Where
from attent.serve.security import Guard, refusal
from attent.serve.tiles import Part

# Threads that wait for their turn to compute; each keeps some memory of its own.
THREADS = 2
# What a part is, beside its numbers.
ABOUT = "x-attent-part"
KINDS = {"js": "text/javascript", "css": "text/css"}
Asked = TypeVar("Asked", bound=BaseModel)
Answer = TypeVar("Answer")
EXAMPLE_OR_TEXT: TypeAdapter[Text | Example] = TypeAdapter(Text | Example)


def application(explorer: Explorer, *, hosts: frozenset[str], token: str) -> Guard:
    """The server's application.

    Args:
        explorer: what answers.
        hosts: the names and addresses, each with its port, by which browsers may ask.
        token: what pages must know to ask.
    """
    parts: dict[str, tuple[type[BaseModel], Callable[[int, Any], Part]]] = {
        "row": (Row, explorer.row),
        "column": (Column, explorer.column),
        "tile": (TileOf, explorer.tile),
        "thumbnail": (Where, explorer.thumbnail),
    }
    routes = [
        Route("/", _page),
        Route("/web/{name:str}", _web),
        Route("/api/about", _json(lambda request: explorer.describe())),
        Route("/api/scenes/{scene:str}", _json(lambda request: explorer.scenes[_scene(request)].describe())),
        Route("/api/scenes/{scene:str}/summary", _json(lambda request: explorer.summary(_scene(request), _query(request, Summary).group))),
        *(Route(f"/api/scenes/{{scene:str}}/{name}", _numbers(kind, ask)) for name, (kind, ask) in parts.items()),
        Route("/api/scenes/{scene:str}/picture", _bytes(lambda request: explorer.pixels(_scene(request)))),
        Route("/api/translate", _grows(explorer), methods=["POST"]),
        Route("/api/fill", _posted(lambda body: explorer.fill(Text.model_validate_json(body))), methods=["POST"]),
        Route("/api/classify", _posted(lambda body: explorer.classify(EXAMPLE_OR_TEXT.validate_json(body))), methods=["POST"]),
    ]
    errors: Any = {AttentError: _wrong, ValidationError: _malformed, HTTPException: _http, Exception: _unforeseen}
    answers = Starlette(routes=routes, exception_handlers=errors)
    # of this server alone: others have loops of their own, between which waiting threads cannot be handed
    answers.state.threads = CapacityLimiter(THREADS)
    return Guard(answers, hosts=hosts, token=token)


async def _computed(request: Request, work: Callable[..., Answer], *given: Any) -> Answer:
    """What is computed outside the loop that answers."""
    return await to_thread.run_sync(partial(work, *given), limiter=request.app.state.threads)


async def _page(request: Request) -> Response:
    return HTMLResponse(files("attent.views").joinpath("web", "explore.html").read_text(encoding="utf-8"))


async def _web(request: Request) -> Response:
    """A script or a style of views/web."""
    name = request.path_params["name"]
    folder = files("attent.views").joinpath("web")
    kind = KINDS.get(name.rpartition(".")[2])
    if kind is None or name not in {file.name for file in folder.iterdir()}:
        raise HTTPException(404)
    return Response(folder.joinpath(name).read_text(encoding="utf-8"), media_type=kind)


def _json(answer: Callable[[Request], Any]) -> Callable[[Request], Awaitable[Response]]:
    async def found(request: Request) -> Response:
        return _Json(await _computed(request, answer, request))

    return found


def _bytes(answer: Callable[[Request], bytes]) -> Callable[[Request], Awaitable[Response]]:
    async def found(request: Request) -> Response:
        return Response(await _computed(request, answer, request), media_type="application/octet-stream")

    return found


def _posted(answer: Callable[[bytes], Any]) -> Callable[[Request], Awaitable[Response]]:
    async def found(request: Request) -> Response:
        return _Json(await _computed(request, answer, await request.body()))

    return found


def _numbers(kind: type[BaseModel], answer: Callable[[int, Any], Part]) -> Callable[[Request], Awaitable[Response]]:
    """Numbers as 32-bit floats, the lowest byte first, row by row."""

    async def found(request: Request) -> Response:
        part = await _computed(request, answer, _scene(request), _query(request, kind))
        height, width = part.values.shape
        about = {"height": height, "width": width, "exact": part.exact, "note": part.note}
        numbers = part.values.contiguous().numpy().astype("<f4").tobytes()
        return Response(numbers, media_type="application/octet-stream", headers={ABOUT: json.dumps(about)})

    return found


def _grows(explorer: Explorer) -> Callable[[Request], Awaitable[Response]]:
    """Server-sent events, each a JSON object; an error that comes late is the last one."""

    async def found(request: Request) -> Response:
        events = explorer.translate(Translate.model_validate_json(await request.body()))
        # what is wrong with the request is said before the answer begins
        first = await _computed(request, lambda: next(events, None))
        assert first is not None
        return StreamingResponse(_events(request, first, events), media_type="text/event-stream")

    return found


async def _events(request: Request, first: dict[str, Any], events: Iterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    yield _event(first)
    try:
        while (event := await _computed(request, lambda: next(events, None))) is not None:
            yield _event(event)
    except AttentError as error:
        yield _event({"kind": "error", "error": str(error)})
    # what has begun as an answer can say that it failed only so
    except Exception as error:
        yield _event({"kind": "error", "error": _what(error)})


def _event(event: dict[str, Any]) -> bytes:
    return b"data: " + _written(event) + b"\n\n"


def _written(value: Any) -> bytes:
    """As JSON; half of a pair of surrogates, which a token may be cut to, is no text."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


class _Json(JSONResponse):
    def render(self, content: Any) -> bytes:
        return _written(content)


def _scene(request: Request) -> int:
    scene = request.path_params["scene"]
    # more digits than those of any scene, which int() itself may refuse
    if not scene.isdecimal() or len(scene) > 9:
        raise HTTPException(404)
    return int(scene)


def _query(request: Request, kind: type[Asked]) -> Asked:
    """What stands behind the question mark."""
    return kind.model_validate(dict(request.query_params))


async def _wrong(request: Request, error: Exception) -> Response:
    return refusal(400, str(error))


async def _malformed(request: Request, error: Exception) -> Response:
    assert isinstance(error, ValidationError)
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return refusal(400, f"{where}: {first['msg']}" if where else first["msg"])


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, error.detail)


async def _unforeseen(request: Request, error: Exception) -> Response:
    return refusal(500, _what(error))


def _what(error: Exception) -> str:
    return f"unexpected {type(error).__name__}: {error}"
