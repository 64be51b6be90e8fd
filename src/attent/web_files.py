"""Scripts and style sheets of pages."""

from __future__ import annotations

from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from attent.views.pages.page import web_file

MEDIA_TYPES = {"js": "text/javascript", "css": "text/css"}


async def static_file(request: Request) -> Response:
    """Send a script or a style sheet of views/web, by the name in the path.

    Raises:
        HTTPException: there is none of this name.
    """
    name = request.path_params["name"]
    media_type = MEDIA_TYPES.get(name.rpartition(".")[2])
    if media_type is None or name not in {file.name for file in files("attent.views").joinpath("web").iterdir()}:
        raise HTTPException(404)
    return Response(web_file(name), media_type=media_type)
