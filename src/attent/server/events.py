"""Answers that are sent as they are made: server-sent events, a JSON object each."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import StreamingResponse

from attent.server.errors import RequestError, as_request_error

EVENT_TYPE = "text/event-stream"
# Proxies must not collect events.
EVENT_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
Event = Mapping[str, Any]


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
