"""The server of `attent explore` and `attent.explore`."""

from __future__ import annotations

import ipaddress
import re
import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Self

import uvicorn
from torch import Tensor

from attent.attention.maps.attention_map import AttentionMap, LabelledMap
from attent.errors import ArgumentError
from attent.explorer.app import application
from attent.explorer.explorer import Explorer
from attent.explorer.security import DeadlineProtocol
from attent.views.build_scene import build_scene
from attent.views.scene import Scene

HOST, PORT = "127.0.0.1", 8765
# Seconds until a server must answer.
START_TIMEOUT = 30.0
# A name, an address, or an IPv6 address in brackets, perhaps with a port.
ALLOWED_HOST = re.compile(
    r"([a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?", re.ASCII | re.IGNORECASE
)


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
        maps: by the paths of their modules, a single one, or a scene.
        tokens: labels of the text that is read; numbers unless given.
        targets: labels of the text that a decoder reads and writes.
        title: of the page.
        sequence: which of a batch, from 0.
        port: the port to listen on; a free one unless given.

    Raises:
        ArgumentError: there is nothing to show, or the port is taken.
        ShapeError: labels fit none of the maps.
    """
    scene = maps if isinstance(maps, Scene) else build_scene(maps, tokens, targets, title=title, sequence=sequence)
    return ExploreServer(Explorer(scenes=[scene]), port=port)


class ExploreServer:
    """A server on this machine, for this machine unless other hosts are allowed.

    Args:
        explorer: computes the answers.
        host: the address to listen on. If it is of this machine alone, browsers may ask by it.
        port: 0 for a free one.
        allowed_hosts: further names or addresses by which browsers may ask, with their port where it is another. Needed
            where others can reach the host.

    Raises:
        ArgumentError: it cannot listen there, a name is none, or others can reach it and no name is allowed.
    """

    def __init__(
        self, explorer: Explorer, *, host: str = HOST, port: int = PORT, allowed_hosts: Sequence[str] = ()
    ) -> None:
        self.is_local = _is_loopback(host)
        parsed = parse_allowed_hosts(host, allowed_hosts)
        self.explorer, self.token = explorer, secrets.token_urlsafe(24)
        self._socket = _listen(host, port)
        self.port = self._socket.getsockname()[1]
        self.host = f"[{host}]" if ":" in host else host
        names = [f"{name}:{port or self.port}" for name, port in parsed]
        if self.is_local:
            names = [f"{name}:{self.port}" for name in (self.host, "localhost", "127.0.0.1", "[::1]")] + names
        self._name = names[0]
        # browsers leave HTTP's own port out
        hosts = frozenset(name.lower() for full in names for name in (full, full.removesuffix(":80")))
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
                raise ArgumentError(f"the server at {self.host}:{self.port} did not start")
            time.sleep(0.01)

    @property
    def address(self) -> str:
        """The URL to open in a browser. Its fragment, which browsers never send by themselves, holds the token."""
        return f"http://{self._name}/#{self.token}"

    def wait(self) -> None:
        """Wait until it is closed, or for Ctrl-C."""
        # not by joining the thread: after an interrupt Python 3.11 believes that it has ended (bpo-45274)
        while not self._has_ended.wait(0.5):
            pass

    def close(self, seconds: float | None = None) -> bool:
        """Stop answering; a computation under way ends at its next step.

        Args:
            seconds: the longest time to wait for that step; forever unless given.

        Returns:
            True if nothing computes any more.
        """
        self._server.should_exit = True
        has_stopped = self.explorer.close(seconds)
        if not self._has_ended.wait(seconds):
            return False
        self._thread.join()
        self._socket.close()
        return has_stopped

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


def parse_allowed_hosts(host: str, allowed_hosts: Sequence[str]) -> list[tuple[str, int | None]]:
    """Return the names by which browsers may ask, each with its port if it has one; arguments as for `ExploreServer`.

    Raises:
        ArgumentError: a name is none, or others can reach the host and no name is allowed.
    """
    if not _is_loopback(host) and not allowed_hosts:
        raise ArgumentError(
            f"other machines may reach host {host!r}: --allowed-host NAME says by which name browsers may ask"
        )
    return [_parse_allowed_host(name) for name in allowed_hosts]


def _is_loopback(host: str) -> bool:
    """Return whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _parse_allowed_host(name: str) -> tuple[str, int | None]:
    """Return the name or address by which browsers may ask, and its port if it has one."""
    match = ALLOWED_HOST.fullmatch(name)
    if match is None or match[1] in ("0.0.0.0", "[::]") or int(match[2] or 0) > 65535:
        raise ArgumentError(
            f"--allowed-host must be one name or address, such as localhost, [::1] or localhost:9000, got {name!r}"
        )
    return match[1], int(match[2]) if match[2] else None


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ArgumentError(f"{host}:{port} cannot be listened on: {error}; --port 0 takes one that is free") from error
