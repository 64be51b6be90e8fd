"""Errors that a request is answered with, in the words that LibreTranslate's clients know, and streams of events.

Events are server-sent, a JSON object each; an error after the first event is the last event.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from attent.errors import AttentError, shortened

# Errors of paths that begin so are objects, for clients that speak as OpenAI's do.
OBJECTS = "/v1/"
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
EVENT_TYPE = "text/event-stream"
# Proxies must not collect events.
EVENT_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
Event = Mapping[str, Any]


class RequestError(AttentError):
    """A request that is not served.

    Args:
        status: the HTTP status.
        message: for the client; the middle of a long one, which may quote the request, is left out.
        headers: of the answer.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        message = shortened(message)
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})


def invalid(problem: str) -> RequestError:
    """Return the error for a request with a wrong or missing parameter."""
    return RequestError(400, f"Invalid request: {problem}")


def busy(seconds: float) -> RequestError:
    """Return the error for a request that finds the queue full; it may be repeated after this many seconds."""
    wait = str(max(round(seconds), 1))
    return RequestError(429, f"The server is busy, try again in {wait} s", {"Retry-After": wait})


def stopped() -> RequestError:
    """Return the error for a request that the end of the server cuts short."""
    return RequestError(503, "The server is being stopped")


def as_request_error(error: Exception) -> RequestError:
    """Return the answer to any error; the details of an unexpected one are not revealed."""
    match error:
        case RequestError():
            return error
        case HTTPException():
            return RequestError(error.status_code, error.detail, error.headers)
        case AttentError():
            return invalid(str(error))
        case _:
            return RequestError(500, "Internal Server Error")


def error_body(path: str, error: RequestError) -> dict[str, Any]:
    """Return the JSON of an error: LibreTranslate's, or below /v1 an object with a type, as OpenAI's clients read it.

    Args:
        path: of the endpoint.
        error: the error.
    """
    if not path.startswith(OBJECTS):
        return {"error": error.message}
    kind = TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    return {"error": {"message": error.message, "type": kind, "param": None, "code": None}}


async def event_stream(
    events: AsyncGenerator[Event, None], error_event: Callable[[RequestError], Event]
) -> StreamingResponse:
    """Return the response that sends events.

    Args:
        events: at least one. An error before the first is raised, and so has its own status.
        error_event: builds the last event from an error after that, when the status was sent already.
    """
    first = await anext(events)

    async def lines() -> AsyncIterator[bytes]:
        async with aclosing(events):
            yield _line(first)
            try:
                async for event in events:
                    yield _line(event)
            except Exception as error:
                yield _line(error_event(as_request_error(error)))

    return StreamingResponse(lines(), media_type=EVENT_TYPE, headers=EVENT_HEADERS)


def _line(event: Event) -> bytes:
    return b"data: " + json.dumps(event, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"
