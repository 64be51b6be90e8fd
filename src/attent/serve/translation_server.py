"""The server: from runs and settings to a process that answers until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import nullcontext

from attent.errors import ArgumentError, needs
from attent.serve.translation.batcher import Batcher
from attent.serve.translation.engines import RunCatalog
from attent.serve.translation.service import TranslationService
from attent.serve.translation.settings import ServerSettings

EXTRA = "serve"
# Seconds between looks at the folders of the runs.
RELOAD_INTERVAL = 1.0
# Seconds that requests under way may take after a signal to stop.
PATIENCE = 30
# Seconds after which another thread may compute: requests are refused quickly while batches are prepared.
SWITCH_INTERVAL = 0.001
# Connections that wait to be accepted.
BACKLOG = 2_048


class TranslationServer:
    """Serves runs.

    Args:
        catalog: the runs.
        settings: of the server.
        say: writes a line of the log.

    Raises:
        AttentError: the extra is not installed.
    """

    def __init__(self, catalog: RunCatalog, settings: ServerSettings, say: Callable[[str], None]) -> None:
        with needs("attent serve needs a few libraries", EXTRA):
            from attent.serve.translation.app import application
            from attent.serve.translation.metrics import Metrics
        self.catalog, self.settings, self._say = catalog, settings, say
        metrics = Metrics(lambda: self.batcher.running, lambda: self.batcher.waiting)
        self.batcher = Batcher(settings, metrics.observe_batch)
        self.service = TranslationService(settings, catalog, self.batcher)
        self.app = application(self.service, metrics, say)

    def close(self) -> None:
        """Finish the sentences that wait, and end the threads."""
        self.batcher.close()

    async def serve(self, listener: socket.socket, has_started: Callable[[], None] = lambda: None) -> None:
        """Answer requests until SIGTERM or SIGINT; then finish those under way, and refuse what comes."""
        import uvicorn

        sys.setswitchinterval(SWITCH_INTERVAL)
        config = uvicorn.Config(
            self.app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=PATIENCE,
        )
        server = uvicorn.Server(config)
        # uvicorn's own handlers raise the signal again at the end: who stops a server would see it fail
        server.capture_signals = nullcontext  # pyright: ignore[reportAttributeAccessIssue]

        def stop(number: int, frame: object) -> None:
            server.should_exit = True

        handlers = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        has_started()
        watching = asyncio.create_task(self._watch_runs())
        try:
            await task
        finally:
            watching.cancel()
            for number, handler in handlers.items():
                signal.signal(number, handler)

    async def _watch_runs(self) -> None:
        """Load runs again that change on disk, in a thread beside the requests."""
        while True:
            await asyncio.sleep(RELOAD_INTERVAL)
            await asyncio.to_thread(self.catalog.reload, self._say)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        ArgumentError: the address is none, or taken.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise ArgumentError(f"{host}:{port} cannot be listened on: {error}; --port 0 takes one that is free") from error
