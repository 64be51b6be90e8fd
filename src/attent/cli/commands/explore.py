"""attent explore: a run, live in the browser."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attent import registry
from attent.cli.inputs import check_utf8, decode_lines, open_source, read_examples
from attent.cli.options import AUTO, Device, Download, RunOrModel, TrustCode, device_of, pretrained
from attent.cli.output import say
from attent.errors import ArgumentError, refuse

if TYPE_CHECKING:
    import torch

    from attent.explorer.loaded_run import LoadedRun
    from attent.tasks.classification.corpus import Data

HOST, PORT, MAX_LENGTH = "127.0.0.1", 8765, 32_768
# Seconds that Ctrl-C waits for a running computation.
PATIENCE = 3.0


def explore(
    run: RunOrModel,
    second_run: Annotated[
        Path | None, typer.Argument(metavar="[RUN2]", help="Another run, asked the same beside it.")
    ] = None,
    text: Annotated[str, typer.Option(help="The text to begin with.")] = "",
    file: Annotated[
        str | None, typer.Option(help="A file of it; of pictures or vectors those to choose from, or digits.")
    ] = None,
    score: Annotated[
        str | None, typer.Option(help="Beside it the same run with this score, one without parameters.")
    ] = None,
    normalizer: Annotated[str | None, typer.Option(help="Beside it the same run with this normalizer.")] = None,
    longest: Annotated[
        int, typer.Option(min=1, help="The most tokens of a text, which are read at once.")
    ] = MAX_LENGTH,
    host: Annotated[
        str, typer.Option(help="The address to listen on, that of this machine alone unless given.")
    ] = HOST,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:PORT]",
            help="The name by which browsers may ask, needed where others reach --host; repeatable.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for one that is free.")] = PORT,
    browse: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    download: Download = False,
    device: Device = AUTO,
    trust_code: TrustCode = False,
) -> None:
    """Type a text and watch what a run makes of it, with the attention of every layer and head.

    Change a token, and it goes on from there. A server of this machine, which answers only the page that it gave:
    behind # in the address stands a token, new at each start. Weights are computed when they are looked at, so that a
    text of tens of thousands of tokens can be zoomed into. Ctrl-C ends it. Of a Hugging Face model the page shows one
    text, or one picture: that of --text.
    """
    import webbrowser

    check_utf8(text, "--text")
    if second_run is not None and (score or normalizer):
        raise ArgumentError(
            "RUN2 shows another run beside the first, --score and --normalizer the same with another part: one of them"
        )
    registry.check("score", score)
    registry.check("normalizer", normalizer)
    from attent.explorer.explorer import Explorer
    from attent.explorer.server import ExploreServer, parse_allowed_hosts

    # before a run is loaded, which may take long
    parse_allowed_hosts(host, allowed_host or ())
    torch_device = device_of(device)
    model = pretrained(run, torch_device, download=download)
    if model is None:
        loaded_runs, text = _load_runs(
            (run, second_run), text, file, score, normalizer, device=torch_device, trust_code=trust_code
        )
        explorer = Explorer(loaded_runs, text=text, longest=longest)
    else:
        refuse(
            (
                second_run or score or normalizer,
                "a Hugging Face model is explored by itself, without RUN2, --score and --normalizer",
            ),
            (bool(text) is (file is not None), "a Hugging Face model reads one text: that of --text, or of --file"),
        )
        explorer = Explorer(scenes=[model.scene(text if file is None else _text_of(file))])
    server = ExploreServer(explorer, host=host, port=port, allowed_hosts=allowed_host or ())
    try:
        print(server.address, flush=True)
        say(
            "Ctrl-C ends it"
            if server.is_local
            else f"whoever reaches {host} can ask by this address, unencrypted; Ctrl-C ends it"
        )
        if browse:
            webbrowser.open(server.address)
        server.wait()
    finally:
        # a second Ctrl-C changes nothing
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        if not server.close(PATIENCE):
            # a thread that still computes would abort Python's own end
            say("attent: interrupted")
            os._exit(130)
        signal.signal(signal.SIGINT, handler)


def _load_runs(
    runs: tuple[Path, Path | None],
    text: str,
    file: str | None,
    score: str | None,
    normalizer: str | None,
    *,
    device: torch.device,
    trust_code: bool,
) -> tuple[list[LoadedRun], str]:
    """Return the runs to explore side by side, with the examples of a file, and the text to begin with."""
    from attent.explorer.loaded_run import load_run, with_examples

    run, second_run = runs
    first = load_run(run, device=device, trust_code=trust_code)
    examples, file_text = _read_file(first, file)
    if text and file_text:
        raise ArgumentError("--text and --file are two texts to begin with: one of them")
    loaded_runs = [first]
    if second_run or score or normalizer:
        loaded_runs.append(
            load_run(second_run or run, score=score, normalizer=normalizer, device=device, trust_code=trust_code)
        )
    return [with_examples(loaded_run, examples) for loaded_run in loaded_runs], text or file_text


def _read_file(run: LoadedRun, file: str | None) -> tuple[Data | None, str]:
    """Return the examples of a file to choose from, or its text, by the kind that a run reads."""
    kind = run.describe()["reads"]
    if kind != "texts":
        if file is None:
            raise ArgumentError(f"this run reads {kind}: --file names those to choose from, as for attent classify")
        return read_examples(run.tool, file, invert=False)[1], ""
    return None, "" if file is None else _text_of(file)


def _text_of(file: str) -> str:
    if file != "-" and not Path(file).is_file():
        raise ArgumentError(f"--file {file} is no file; a text is given by --text")
    with open_source(file) as stream:
        return " ".join(line.strip() for line in decode_lines(stream, file))
