"""Error responses, worded as LibreTranslate's clients expect them, and streams of events.

Events are server-sent, one JSON object each; an error after the first event is sent as the last event.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from attent.errors import AttentError, shortened

EVENT_TYPE = "text/event-stream"
# Proxies must not buffer events.
EVENT_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
Event = Mapping[str, Any]


class RequestError(AttentError):
    """A request that is refused or fails.

    Args:
        status: the HTTP status.
        message: the message for the client; a long one, which may quote the request, is shortened in the middle.
        headers: additional headers of the response.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        message = shortened(message)
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})


def invalid(problem: str) -> RequestError:
    """Return the error for a request with a wrong or missing parameter."""
    return RequestError(400, f"Invalid request: {problem}")


def busy(seconds: float) -> RequestError:
    """Return the error for a busy server; the client may retry after this many seconds."""
    wait = str(max(round(seconds), 1))
    return RequestError(429, f"The server is busy, try again in {wait} s", {"Retry-After": wait})


def stopped() -> RequestError:
    """Return the error for a request interrupted by the server's shutdown."""
    return RequestError(503, "The server is being stopped")


def as_request_error(error: Exception) -> RequestError:
    """Convert any exception to the error to answer with; details of an unexpected one are not revealed."""
    match error:
        case RequestError():
            return error
        case HTTPException():
            return RequestError(error.status_code, error.detail, error.headers)
        case AttentError():
            return invalid(str(error))
        case _:
            return RequestError(500, "Internal Server Error")


async def event_stream(events: AsyncGenerator[Event, None]) -> StreamingResponse:
    """Return a response that streams events.

    Args:
        events: the events, at least one. An error before the first is raised, so that the response has its status; a
            later one becomes the last event.
    """
    first = await anext(events)

    async def lines() -> AsyncIterator[bytes]:
        async with aclosing(events):
            yield _line(first)
            try:
                async for event in events:
                    yield _line(event)
            except Exception as error:
                request_error = as_request_error(error)
                yield _line({"kind": "error", "error": request_error.message, "status": request_error.status})

    return StreamingResponse(lines(), media_type=EVENT_TYPE, headers=EVENT_HEADERS)


def _line(event: Event) -> bytes:
    return b"data: " + json.dumps(event, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"
