"""Errors that a request is answered with, in the words that LibreTranslate's clients know."""

from __future__ import annotations

from collections.abc import Mapping

from attent.errors import AttentError


class RequestError(AttentError):
    """A request that is not served.

    Args:
        status: the HTTP status.
        message: for the client.
        headers: of the answer.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})


def invalid(problem: str) -> RequestError:
    """Return the error for a request with a wrong or missing parameter."""
    return RequestError(400, f"Invalid request: {problem}")


def busy(seconds: float) -> RequestError:
    """Return the error for a request that finds the queue full; it may come again after so many seconds."""
    wait = str(max(round(seconds), 1))
    return RequestError(429, f"The server is busy, try again in {wait} s", {"Retry-After": wait})
