"""The translation server's process: it listens, reloads runs and shuts down."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial

import torch

from attent import devices
from attent.server.app import Metrics, application
from attent.server.batcher import Batcher, wait_until_idle
from attent.server.catalog import RunCatalog
from attent.server.engines import languages_of
from attent.server.service import TranslationService
from attent.server.settings import ServerSettings
from attent.server.translated_files import TranslatedFiles

CPU = torch.device("cpu")
# Seconds between checks of the run folders.
RELOAD_INTERVAL = 1.0
# Checks after which freed memory is returned to the system, if nothing is being translated.
TRIM_ROUNDS = 20
# Seconds that pending work may take after a signal to stop; the process exits within ten.
PATIENCE = 7
# Seconds after which Python switches threads, so that requests are refused quickly while batches are prepared.
SWITCH_INTERVAL = 0.001
# File descriptors reserved for libraries, runs and documents, not for connections.
RESERVED_DESCRIPTORS = 128


class TranslationServer:
    """Serves the runs of a catalog over HTTP.

    Args:
        catalog: the runs to serve.
        settings: the server's settings.
        say: writes a line to the log.
        device: the device of the runs' models.
    """

    def __init__(
        self, catalog: RunCatalog, settings: ServerSettings, say: Callable[[str], None], device: torch.device = CPU
    ) -> None:
        self.catalog, self.settings, self._say = catalog, settings, say
        # on the monotonic clock; set when a signal arrives
        self._deadline = 0.0
        self._watcher: threading.Thread | None = None
        metrics = Metrics(
            lambda: self.batcher.running,
            lambda: self.batcher.waiting,
            lambda: catalog.loads,
            lambda: len(catalog.runs),
        )
        # the current GPU, on which Triton launches kernels, is set per thread
        prepare = partial(torch.cuda.set_device, device) if device.type == "cuda" and device.index is not None else None
        self.batcher = Batcher(settings, metrics.observe_batch, prepare, languages_of)
        self.service = TranslationService(settings, catalog, self.batcher, say)
        self.files = TranslatedFiles(settings.file_lifetime)
        self.app = application(self.service, metrics, say, self.files)

    def run(self, listener: socket.socket, has_started: Callable[[], None] = lambda: None) -> bool:
        """Answer requests until SIGTERM or SIGINT, then end the threads.

        The event loop is uvloop's if that is installed.

        Returns:
            True if all threads have ended; otherwise an abandoned thread is still computing and would delay the exit of
            the process.
        """
        loop_factory, listeners = None, [listener]
        with suppress(ImportError):
            from uvloop import new_event_loop as loop_factory

            from attent.server.connections import share_listener

            listeners = share_listener(listener)
        try:
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                runner.run(self.serve(listeners, has_started))
        finally:
            # requests and threads share one deadline
            has_ended = self.close(max(self._deadline - time.monotonic(), 0))
        if self._watcher is not None:
            # a run may be loading: Python aborts if a thread writes to the log during its exit
            self._watcher.join(max(self._deadline - time.monotonic(), 0))
            has_ended &= not self._watcher.is_alive()
        return has_ended

    def close(self, seconds: float | None = None) -> bool:
        """Finish the sentences in the queue, and end the threads.

        Args:
            seconds: the longest time to wait for the threads; no limit by default.

        Returns:
            True if the threads have ended.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        self.service.close()
        has_ended = self.batcher.close(seconds)
        self.catalog.close()
        return has_ended & wait_until_idle(None if deadline is None else max(deadline - time.monotonic(), 0))

    async def serve(self, listeners: Sequence[socket.socket], has_started: Callable[[], None] = lambda: None) -> None:
        """Answer requests until SIGTERM or SIGINT; then finish pending requests and refuse new ones.

        Args:
            listeners: listening sockets; several of one port let the event loop accept several connections per
                iteration.
            has_started: called once the server answers requests.
        """
        import uvicorn

        from attent.server.connections import BoundedProtocol
        from attent.server.limits import AddressLimits

        settings = self.settings
        limits = AddressLimits(
            _connection_limit(settings.connection_limit), settings.address_limit, settings.trusted_proxy
        )
        sys.setswitchinterval(SWITCH_INTERVAL)
        # libraries and runs stay in memory: a full collection would visit all of their objects while every thread waits
        # (0.3 to 0.9 s)
        gc.collect()
        gc.freeze()
        # with a warning for each malformed form, clients could fill the log
        logging.getLogger("python_multipart").setLevel(logging.ERROR)
        config = uvicorn.Config(
            self.app,
            http=partial(BoundedProtocol, limits=limits),  # pyright: ignore[reportArgumentType]
            ws="none",
            # X-Forwarded-For is evaluated by the limits, and only from trusted proxies
            proxy_headers=False,
            lifespan="off",
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=PATIENCE,
        )
        server = uvicorn.Server(config)
        # uvicorn's own handlers raise the signal again on exit, which looks like a failure
        server.capture_signals = nullcontext  # pyright: ignore[reportAttributeAccessIssue]

        def stop(number: int, frame: object) -> None:
            server.should_exit = True
            self._deadline = time.monotonic() + PATIENCE
            # a document may take minutes
            loop.call_soon_threadsafe(self.service.documents.stop)

        loop = asyncio.get_running_loop()
        handlers = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        task = asyncio.create_task(server.serve(sockets=[*listeners]))
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        has_started()
        has_ended = threading.Event()
        # not in the event loop, which could not end while a run is being loaded
        self._watcher = threading.Thread(target=self._watch_runs, args=(has_ended,), name="attent-watch", daemon=True)
        self._watcher.start()
        try:
            await task
        finally:
            has_ended.set()
            gc.unfreeze()
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _watch_runs(self, has_ended: threading.Event) -> None:
        """Reload runs that change on disk, and delete expired documents, in a separate thread."""
        rounds = 0
        while not has_ended.wait(RELOAD_INTERVAL):
            rounds += 1
            if rounds % TRIM_ROUNDS == 0 and not self.batcher.running:
                devices.trim_memory()
            for work in (self.catalog.reload, self.files.delete_expired):
                try:
                    work()
                # such as a full disk; the next check may succeed
                except Exception:
                    logging.getLogger(__name__).exception("checking the runs and documents failed")


def _connection_limit(limit: int) -> int:
    """Raise this process's limit on file descriptors if needed; return how many connections it allows."""
    try:
        import resource
    except ImportError:
        return limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wish = limit + RESERVED_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wish:
        # macOS refuses more than its OPEN_MAX, even without a hard limit
        with suppress(OSError, ValueError):
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (wish if hard == resource.RLIM_INFINITY else min(hard, wish), hard)
            )
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit if soft == resource.RLIM_INFINITY else max(min(limit, soft - RESERVED_DESCRIPTORS), 1)
