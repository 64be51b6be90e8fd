"""Code shared by both servers: the listening socket, and the scripts and style sheets of pages."""

import socket
from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from attent.errors import ArgumentError
from attent.views.pages.page import web_file

# Maximum number of connections waiting to be accepted.
BACKLOG = 2_048
MEDIA_TYPES = {"js": "text/javascript", "css": "text/css"}


async def static_file(request: Request) -> Response:
    """Send the script or style sheet in views/web that the request's path names.

    Raises:
        HTTPException: there is no such file.
    """
    name = request.path_params["name"]
    media_type = MEDIA_TYPES.get(name.rpartition(".")[2])
    if media_type is None or name not in {file.name for file in files("attent.views").joinpath("web").iterdir()}:
        raise HTTPException(404)
    return Response(web_file(name), media_type=media_type)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address.

    Raises:
        ArgumentError: the address is invalid or in use.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise ArgumentError(f"{host}:{port} cannot be listened on: {error}; use --port 0 for any free port") from error
