"""A server that runs until it is closed, and what a page of it shows."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Self

from torch import Tensor

from attent.attention.maps.attention_map import AttentionMap
from attent.errors import ArgumentError, AttentError
from attent.serve.explorer import Explorer
from attent.views.build_scene import arranged
from attent.views.panel import LabelledMap
from attent.views.scene import Scene

HOST, PORT = "127.0.0.1", 8765
# Seconds until a server must answer.
STARTING = 30.0
INSTALL = "attent explore needs starlette and uvicorn: pip install 'attent[explore]'"


def explore(
    maps: Mapping[str, AttentionMap | Tensor] | Mapping[str, LabelledMap] | AttentionMap | Tensor | Scene,
    tokens: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    *,
    title: str = "",
    sequence: int = 0,
    port: int = 0,
) -> Exploring:
    """Look at what `watch` saw of any model, at any length, in a browser on this machine.

    Nothing is computed but what is looked at. The server runs in the background of this process until it is closed.

    Example:
        >>> with attent.watch(model) as seen:
        ...     model(**inputs)
        >>> print(attent.explore(seen, tokens).address)

    Args:
        maps: by the paths of their modules, a single one, or a scene.
        tokens: labels of the text that is read; numbers unless given.
        targets: labels of the text that a decoder reads and writes.
        title: above it.
        sequence: which of a batch, from 0.
        port: on which the server listens; one that is free unless given.

    Raises:
        ArgumentError: there is nothing to show, or the port is taken.
        AttentError: starlette and uvicorn are not installed.
        ShapeError: labels fit none of the maps.
    """
    scene = maps if isinstance(maps, Scene) else arranged(maps, tokens, targets, title=title, sequence=sequence)
    return Exploring(Explorer(scenes=[scene]), port=port)


class Exploring:
    """A server of this machine for this machine.

    Args:
        explorer: what answers.
        host: the address that it listens on, and the name that browsers must ask by.
        port: 0 for one that is free.

    Raises:
        ArgumentError: it cannot listen there.
        AttentError: starlette and uvicorn are not installed.
    """

    def __init__(self, explorer: Explorer, *, host: str = HOST, port: int = PORT) -> None:
        try:
            import uvicorn

            from attent.serve.app import application
            from attent.serve.connections import TimedProtocol
        except ImportError as error:
            raise AttentError(INSTALL) from error
        if host in ("", "0.0.0.0", "::", "*"):
            raise ArgumentError(f"host must be the one name or address that browsers ask by, got {host!r}")
        self.explorer, self.token = explorer, secrets.token_urlsafe(24)
        self._socket = _listening(host, port)
        self.port = self._socket.getsockname()[1]
        self.host = f"[{host}]" if ":" in host else host
        names = {self.host, *(("localhost", "127.0.0.1", "[::1]") if self.local else ())}
        hosts = frozenset(f"{name}:{self.port}".lower() for name in names)
        settings = uvicorn.Config(
            application(explorer, hosts=hosts, token=self.token),
            log_level="error", access_log=False, lifespan="off", ws="none", http=TimedProtocol, loop="asyncio", server_header=False,
        )  # fmt: skip
        self._server, self._ended = uvicorn.Server(settings), threading.Event()
        # of a thread that is not the first one uvicorn leaves signals alone
        self._thread = threading.Thread(target=self._serve, name="attent-explore", daemon=True)
        self._thread.start()
        end = time.monotonic() + STARTING
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > end:
                raise ArgumentError(f"the server at {self.host}:{self.port} did not start")
            time.sleep(0.01)

    @property
    def local(self) -> bool:
        """Whether only this machine can ask."""
        return self.host in ("localhost", "[::1]") or self.host.startswith("127.")

    @property
    def address(self) -> str:
        """What to open in a browser. Behind # stands a token without which nothing is computed, and which no server is told by itself."""
        return f"http://{self.host}:{self.port}/#{self.token}"

    def wait(self) -> None:
        """Until it is closed, or Ctrl-C."""
        # not by joining the thread: interrupted, Python 3.11 takes it for ended (bpo-45274)
        while not self._ended.wait(0.5):
            pass

    def close(self, seconds: float | None = None) -> bool:
        """Answer nobody any longer; what is being computed ends at its next step.

        Args:
            seconds: the longest to wait for that step; until it has ended unless given.

        Returns:
            Whether nothing is computed any more.
        """
        self._server.should_exit = True
        has_stopped = self.explorer.close(seconds)
        if not self._ended.wait(seconds):
            return False
        self._thread.join()
        self._socket.close()
        return has_stopped

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._ended.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Exploring({self.address})"

    def _repr_html_(self) -> str:
        return f'<a href="{self.address}" target="_blank" rel="noopener">{self.address}</a>'


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ArgumentError(f"{host}:{port} cannot be listened on: {error}; --port 0 takes one that is free") from error
