"""attent serve: runs as a translation server, which existing clients find."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from attent.cli.options import TypedLoading
from attent.cli.output import say
from attent.errors import ArgumentError
from attent.server.settings import ServerSettings
from attent.setting import Help


def serve(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN…", help="Run folders that translate, each between other languages.")
    ],
    settings: ServerSettings,
    loading: TypedLoading,
    languages: Annotated[
        list[str] | None,
        Help("Languages of each run in order, such as en:de; those of its config unless given.", "SOURCE:TARGET"),
    ] = None,
    glossary: Annotated[
        list[Path] | None, Help("Glossary of each run in order: a term, a tab and its translation in a line.")
    ] = None,
) -> None:
    """Serve runs over HTTP with LibreTranslate's interface: POST /translate, /detect, GET /languages and more.

    Requests share batches, which changes no answer: a translation does not depend on its batch. If the queue is full,
    requests are refused at once with 429. A run that changes on disk is reloaded. SIGTERM and Ctrl-C finish the
    requests in progress. Use a proxy for encryption.
    """
    import torch

    from attent.server.engines import RunCatalog, parse_languages
    from attent.server.server import TranslationServer
    from attent.tasks.translation.term_search import read_terms
    from attent.tasks.translation.translator import load
    from attent.web import listen

    if settings.require_api_key and settings.api_keys_file is None:
        raise ArgumentError("--require-api-key needs --api-keys-file, which has the keys")
    pairs = parse_languages(languages or ())
    if pairs and len(pairs) != len(runs):
        raise ArgumentError(
            f"--languages are for each run in order: {len(runs)} runs and {len(pairs)} pairs of languages"
        )
    if glossary and len(glossary) != len(runs):
        raise ArgumentError(
            f"--glossary is given once for each run in order: {len(runs)} runs and {len(glossary)} glossaries"
        )
    device = loading.torch_device()
    if settings.threads is None:
        settings = replace(settings, threads=torch.get_num_threads() if device.type == "cpu" else 1)
    catalog = RunCatalog(runs, pairs or [None] * len(runs), lambda run: loading.tool(run, load))
    for served, path in zip(catalog.runs, glossary or (), strict=False):
        catalog.add_glossary(served, read_terms(path, served.translator.target_tokenizer))
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    with listen(settings.host, settings.port) as listener:
        server = TranslationServer(catalog, settings, say, device)

        def announce() -> None:
            print(f"http://{name}:{listener.getsockname()[1]}", flush=True)
            say("; ".join(f"{run.source} → {run.target}: {run.path}" for run in catalog.runs))
            say(limits_line(settings))

        if not server.run(listener, announce):
            say("what took longer than the server's end was given up")
            # a thread that still computes would hold up Python's own end, or abort it
            os._exit(0)


def limits_line(settings: ServerSettings) -> str:
    """Return the limits of a server in one line."""
    names = (
        "char_limit",
        "batch_limit",
        "alternatives_limit",
        "req_limit",
        "queue_limit",
        "threads",
        "batch",
        "beam",
        "timeout",
    )
    names = (*names, "connection_limit", "address_limit")
    values = ((name.replace("_", " "), getattr(settings, name)) for name in names)
    return "limits: " + ", ".join(f"{name} {'none' if value == -1 else value}" for name, value in values)
