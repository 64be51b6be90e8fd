"""The address that a client knows the server by, for links in answers."""

from __future__ import annotations

import re
from collections.abc import Collection

from starlette.requests import Request

# A name or an address, and a port: nothing that could end a link or begin another one.
HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?")
PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]{1,100}){0,8}")
SCHEMES = ("http", "https")


def public_address(request: Request, trusted_proxies: Collection[str]) -> str:
    """Return scheme, host and root path, such as http://localhost:5000, without a slash at the end.

    What the Host header says is taken where it is a host; X-Forwarded-Proto, -Host and -Prefix are believed of a
    trusted proxy alone.
    """
    scheme, hosts, prefix = request.url.scheme, [request.headers.get("host", "")], ""
    if request.client is not None and request.client.host in trusted_proxies:
        forwarded = request.headers.get("x-forwarded-proto", "").lower()
        scheme = forwarded if forwarded in SCHEMES else scheme
        hosts.insert(0, request.headers.get("x-forwarded-host", ""))
        forwarded = request.headers.get("x-forwarded-prefix", "").rstrip("/")
        # a path that goes up leads elsewhere
        prefix = forwarded if PREFIX.fullmatch(forwarded) and ".." not in forwarded else ""
    address, port = request.scope.get("server") or ("localhost", None)
    own = f"[{address}]" if ":" in address else address
    host = next((host for host in hosts if HOST.fullmatch(host)), own if port is None else f"{own}:{port}")
    return f"{scheme}://{host}{prefix}"
