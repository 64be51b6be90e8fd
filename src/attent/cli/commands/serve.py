"""attent serve: serve runs as a translation server for existing clients."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from attent.cli.options import Runs, TypedLoading, bytes_in
from attent.cli.output import say
from attent.errors import refuse
from attent.server.settings import ServerSettings
from attent.setting import Help

# Settings to report at the start.
REQUEST_LIMITS = ("char_limit", "batch_limit", "alternatives_limit", "req_limit")
SERVER_LIMITS = ("queue_limit", "threads", "batch", "beam", "timeout", "connection_limit", "address_limit")


def serve(
    paths: Runs = None,
    *,
    settings: ServerSettings,
    loading: TypedLoading,
    runs: Annotated[Path | None, Help("Folder of runs, each loaded when first needed.", "DIR")] = None,
    memory: Annotated[
        str | None, Help("Memory of the process above which the least used runs of --runs leave it.", "SIZE")
    ] = None,
    languages: Annotated[
        list[str] | None,
        Help("Languages of each run, in order, such as en:de; those of its config unless given.", "SOURCE:TARGET"),
    ] = None,
    glossary: Annotated[list[Path] | None, Help("Glossary of each run, in order: term, tab, translation.")] = None,
) -> None:
    """Serve runs over HTTP with LibreTranslate's API: POST /translate, POST /detect, GET /languages and more.

    Each run is a translator for its own languages; runs of the same languages are an ensemble.
    Requests share batches, which does not change the translations. If the queue is full, requests are refused
    immediately with status 429. A run that changes on disk is reloaded. Languages that no run translates directly are
    translated through a third one. On SIGTERM or Ctrl-C, the server finishes the requests in progress and stops. Use a
    proxy for encryption.
    """
    import torch

    from attent import system
    from attent.server.catalog import RunCatalog, parse_languages
    from attent.server.server import TranslationServer
    from attent.tasks.translation.term_search import read_terms
    from attent.tasks.translation.translator import load_ensemble
    from attent.web import listen

    run_paths, pairs = paths or [], parse_languages(languages or ())
    refuse(
        (
            settings.require_api_key and settings.api_keys_file is None,
            "--require-api-key needs keys: give --api-keys-file FILE",
        ),
        (not run_paths and runs is None, "give runs to serve, or --runs DIR"),
        (memory is not None and runs is None, "--memory goes with --runs DIR"),
        (memory is not None and not system.IS_LINUX, "--memory needs Linux, which tells the memory of a process"),
    )
    refuse(
        *(
            (
                values and len(values) != len(run_paths),
                f"give {option} once for each run, got {len(values)} for {len(run_paths)} runs",
            )
            for option, values in (("--languages", pairs), ("--glossary", glossary or ()))
        )
    )
    device = loading.torch_device()
    if settings.threads is None:
        settings = replace(settings, threads=torch.get_num_threads() if device.type == "cpu" else 1)
    catalog = RunCatalog(
        run_paths,
        pairs or [None] * len(run_paths),
        lambda copies: loading.tool(copies, load_ensemble),
        folder=runs,
        memory=None if memory is None else bytes_in(memory, "--memory"),
        say=say,
    )
    for run, path in zip(run_paths, glossary or (), strict=False):
        entry = next(entry for entry in catalog.entries if run in entry.paths)
        entry.glossary = read_terms(path, catalog.use(entry).translator.target_tokenizer)
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    with listen(settings.host, settings.port) as listener:
        server = TranslationServer(catalog, settings, say, device)

        def announce() -> None:
            print(f"http://{name}:{listener.getsockname()[1]}", flush=True)
            say("; ".join(f"{entry}: {entry.name}" for entry in catalog.entries))
            say(limits_line(settings))

        if not server.run(listener, announce):
            say("stopped before all requests were finished")
            # a thread that is still computing would delay or crash Python's shutdown
            os._exit(0)


def limits_line(settings: ServerSettings) -> str:
    """Return the limits of a server as one line."""
    values = ((name.replace("_", " "), getattr(settings, name)) for name in (*REQUEST_LIMITS, *SERVER_LIMITS))
    return "limits: " + ", ".join(f"{name} {'none' if value == -1 else value}" for name, value in values)
