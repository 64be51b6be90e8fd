"""The server's page to translate with, which loads nothing from other servers, and its specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse

from attent.server.settings import ServerSettings
from attent.server.specification import specification
from attent.views.pages.page import web_file

# A page runs only its own scripts, calls only its own server, and cannot be embedded in another page.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
    "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


class Pages:
    """The pages of a server.

    Args:
        settings: the server's settings.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._specification = specification(settings)

    async def index(self, request: Request) -> HTMLResponse:
        """Answer GET / with the translation page."""
        return HTMLResponse(web_file("translate.html"), headers=HEADERS)

    async def spec(self, request: Request) -> Mapping[str, Any]:
        """Answer GET /spec."""
        return self._specification
