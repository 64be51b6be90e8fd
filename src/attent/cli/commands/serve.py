"""attent serve: runs as a translation server, which existing clients find."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from attent.cli.glossaries import read_terms
from attent.cli.options import AUTO, Device, TrustCode, Weights, device_of, loaded
from attent.cli.output import say
from attent.errors import ArgumentError

HOST, PORT = "127.0.0.1", 5000


def serve(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN…", help="Run folders that translate, each between other languages.")
    ],
    languages: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE:TARGET",
            help="The languages of each run in order, such as en:de; those of its config unless given.",
        ),
    ] = None,
    glossary: Annotated[
        list[Path] | None,
        typer.Option(help="Lines of a term, a tab, and its translation; a file for each run in order."),
    ] = None,
    host: Annotated[
        str, typer.Option(envvar="LT_HOST", help="The address to listen on; 0.0.0.0 for all of this machine.")
    ] = HOST,
    port: Annotated[
        int, typer.Option(min=0, max=65535, envvar="LT_PORT", help="The port; 0 for one that is free.")
    ] = PORT,
    char_limit: Annotated[
        int, typer.Option(min=-1, envvar="LT_CHAR_LIMIT", help="Characters of a text; -1 for no limit.")
    ] = 5_000,
    batch_limit: Annotated[
        int, typer.Option(min=-1, envvar="LT_BATCH_LIMIT", help="Texts of a request; -1 for no limit.")
    ] = 50,
    alternatives_limit: Annotated[
        int,
        typer.Option(
            min=0, max=100, envvar="LT_ALTERNATIVES_LIMIT", help="Further translations that a request may ask for."
        ),
    ] = 5,
    req_limit: Annotated[
        int,
        typer.Option(min=-1, envvar="LT_REQ_LIMIT", help="Texts a minute for each address or key; -1 for no limit."),
    ] = -1,
    req_flood_threshold: Annotated[
        int,
        typer.Option(
            min=-1,
            envvar="LT_REQ_FLOOD_THRESHOLD",
            help="Refusals an hour after which an address is refused; -1 for never.",
        ),
    ] = -1,
    api_keys_file: Annotated[
        Path | None,
        typer.Option(help="Lines of an API key and, after a space, its texts a minute; 0 of them blocks it."),
    ] = None,
    require_api_key: Annotated[
        bool, typer.Option("--require-api-key", help="Refuse requests without a key of that file.")
    ] = False,
    trusted_proxy: Annotated[
        list[str] | None, typer.Option(metavar="ADDRESS", help="A proxy whose X-Forwarded-For is believed; repeatable.")
    ] = None,
    allow_origin: Annotated[str, typer.Option(help="The web pages that may ask; * for all.")] = "*",
    beam: Annotated[int, typer.Option(min=1, max=100, help="Hypotheses of the search.")] = 1,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            envvar="LT_THREADS",
            help="Batches at the same time, a core each; as many as there are, or 1 on a GPU.",
        ),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Sentences of a batch.")] = 64,
    window: Annotated[
        float, typer.Option(min=0, max=1000, help="Milliseconds that a sentence waits for others.")
    ] = 3.0,
    queue_limit: Annotated[
        int, typer.Option(min=1, help="Sentences that may wait; beyond that requests are refused at once.")
    ] = 2_048,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds after which a request is given up.")] = 60.0,
    connection_limit: Annotated[int, typer.Option(min=1, help="Connections of all clients.")] = 4_096,
    address_limit: Annotated[
        int, typer.Option(min=1, help="Connections from one address; trusted proxies have no such limit.")
    ] = 512,
    disable_files_translation: Annotated[
        bool,
        typer.Option(
            "--disable-files-translation",
            envvar="LT_DISABLE_FILES_TRANSLATION",
            help="Translate no documents: refuse POST /translate_file.",
        ),
    ] = False,
    metrics_auth_token: Annotated[
        str | None,
        typer.Option(envvar="LT_METRICS_AUTH_TOKEN", help="What readers of /metrics must send as a Bearer token."),
    ] = None,
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="A line for each request, without its texts.")
    ] = False,
    dtype: Weights = None,
    device: Device = AUTO,
    trust_code: TrustCode = False,
) -> None:
    """Serve runs over HTTP, by LibreTranslate's interface: POST /translate, /detect, GET /languages and the others.

    Requests share batches, which changes no answer: a translation does not depend on its batch. A full queue refuses at
    once, with 429. A run that changes on disk is loaded again. SIGTERM and Ctrl-C finish what is under way. Encryption
    is a proxy's job.
    """
    from functools import partial

    import torch

    from attent.server.engines import RunCatalog, parse_languages
    from attent.server.server import TranslationServer, listen
    from attent.server.settings import ServerSettings

    if require_api_key and api_keys_file is None:
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
    compute_device = device_of(device)
    settings = ServerSettings(
        char_limit=char_limit,
        batch_limit=batch_limit,
        alternatives_limit=alternatives_limit,
        request_limit=None if req_limit < 0 else req_limit,
        ban_after=None if req_flood_threshold < 0 else req_flood_threshold,
        requires_key=require_api_key,
        keys_file=api_keys_file,
        trusted_proxies=frozenset(trusted_proxy or ()),
        origin=allow_origin,
        beam=beam,
        window=window / 1000,
        batch=batch,
        queue_limit=queue_limit,
        threads=threads or (torch.get_num_threads() if compute_device.type == "cpu" else 1),
        timeout=timeout,
        connection_limit=connection_limit,
        address_limit=address_limit,
        has_files=not disable_files_translation,
        metrics_token=metrics_auth_token,
        logs_requests=log_requests,
    )
    load = partial(loaded, device=compute_device, task="translate", trust_code=trust_code, dtype=dtype)
    catalog = RunCatalog(runs, pairs or [None] * len(runs), load)
    for served, path in zip(catalog.runs, glossary or (), strict=False):
        catalog.add_glossary(served, read_terms(path, served.translator.target_tokenizer))
    name = f"[{host}]" if ":" in host else host
    with listen(host, port) as listener:
        server = TranslationServer(catalog, settings, say, compute_device)

        def announce() -> None:
            print(f"http://{name}:{listener.getsockname()[1]}", flush=True)
            say("; ".join(f"{run.source} → {run.target}: {run.path}" for run in catalog.runs))
            say(limits_line(settings))

        if not server.run(listener, announce):
            say("what took longer than the server's end was given up")
            # a thread that still computes would hold up Python's own end, or abort it
            os._exit(0)


def limits_line(settings: object) -> str:
    """Return the limits of a server in one line."""
    names = (
        "char_limit",
        "batch_limit",
        "alternatives_limit",
        "request_limit",
        "queue_limit",
        "threads",
        "batch",
        "beam",
        "timeout",
    )
    names = (*names, "connection_limit", "address_limit")
    values = ((name.replace("_", " "), getattr(settings, name)) for name in names)
    return "limits: " + ", ".join(f"{name} {'none' if value is None else value}" for name, value in values)
