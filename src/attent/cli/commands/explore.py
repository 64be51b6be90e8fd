"""attent explore: explore a run in the browser."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attent.cli.options import PretrainedLoading, RunOrModel
from attent.cli.output import say
from attent.errors import ArgumentError, refuse
from attent.setting import Bound, Flag, Help
from attent.text.sources import check_utf8, source_lines

if TYPE_CHECKING:
    from attent.explorer.explorer import Explorer
    from attent.explorer.loaded_run import LoadedRun
    from attent.explorer.server import ExploreServer
    from attent.tasks.classification.inputs import Data
    from attent.tasks.pretrained.generator import PretrainedGenerator

PORT, MAX_LENGTH = 8765, 32_768
# Seconds to wait for a running computation after Ctrl-C.
PATIENCE = 3.0


@dataclass(frozen=True)
class Exploration:
    """Options for the initial text."""

    text: Annotated[str, Help("Initial text.")] = ""
    file: Annotated[str | None, Help("File of the initial text, or of pictures or vectors; or digits.")] = None


@dataclass(frozen=True)
class Address:
    """Options for the address of the explorer."""

    port: Annotated[int, Bound(0, 65535), Help("Port to listen on; 0 for a free one.")] = PORT
    browse: Annotated[bool, Flag("--open/--no-open"), Help("Open the page in a browser.")] = True


def explore(
    run: RunOrModel,
    exploration: Exploration,
    address: Address,
    loading: PretrainedLoading,
    second_run: Annotated[Path | None, typer.Argument(metavar="[RUN2]", help="Another run to compare with.")] = None,
    longest: Annotated[int, Bound(1), Help("Maximum number of tokens in a text.")] = MAX_LENGTH,
) -> None:
    """Explore interactively how a run processes a text, with the attention of every layer and head.

    Change a token, and generation continues from there. The server answers only its own page: the address ends in a
    secret token after #, new at each start. Weights are computed when they are displayed, so that you can zoom into
    texts of tens of thousands of tokens. A language model of Hugging Face generates as a run does; for other models,
    and for a run that captions, the page shows only the text or picture of --text.
    """
    text, file = exploration.text, exploration.file
    check_utf8(text, "--text")
    from attent.explorer.explorer import Explorer
    from attent.explorer.server import ExploreServer
    from attent.tasks.pretrained.generator import PretrainedGenerator

    model = loading.pretrained(run)
    if model is None and (stored := loading.stored_run(run)).task.name == "caption":
        # shows a picture as a Hugging Face model does
        model = stored.tool
    if isinstance(model, PretrainedGenerator):
        explorer = _explore_generators(model, (run, second_run), exploration, loading, longest)
    elif model is None:
        loaded_runs, text = _load_runs((run, second_run), exploration, loading)
        explorer = Explorer(loaded_runs, text=text, longest=longest)
    else:
        refuse(
            (second_run, "this model cannot be compared: omit RUN2"),
            (bool(text) is (file is not None), "this model needs exactly one text or picture: give --text or --file"),
        )
        explorer = Explorer(scenes=[model.scene(text if file is None else _text_of(file))])
    _run(ExploreServer(explorer, port=address.port), address)


def _explore_generators(
    model: PretrainedGenerator,
    runs: tuple[Path, Path | None],
    exploration: Exploration,
    loading: PretrainedLoading,
    longest: int,
) -> Explorer:
    """Return an explorer of a language model of transformers, and of a second one."""
    from attent.explorer.explorer import Explorer
    from attent.explorer.loaded_run import LoadedRun
    from attent.tasks.text_generation.task import TextGenerationTask

    name, second = runs
    generators = {name: model} if second is None else {name: model, second: loading.generator(second)}
    refuse((exploration.text and exploration.file, "give --text or --file, not both"))
    text = exploration.text or ("" if exploration.file is None else _text_of(exploration.file))
    loaded = [LoadedRun(path.name or str(path), TextGenerationTask.name, tool) for path, tool in generators.items()]
    return Explorer(loaded, text=text, longest=longest)


def _run(server: ExploreServer, address: Address) -> None:
    """Open the page, and wait for Ctrl-C."""
    try:
        print(server.address, flush=True)
        say("press Ctrl-C to stop")
        if address.browse:
            import webbrowser

            webbrowser.open(server.address)
        server.wait()
    finally:
        # ignore a second Ctrl-C
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        if not server.close(PATIENCE):
            # a thread that is still computing would crash Python's shutdown
            say("attent: interrupted")
            os._exit(130)
        signal.signal(signal.SIGINT, handler)


def _load_runs(
    runs: tuple[Path, Path | None], exploration: Exploration, loading: PretrainedLoading
) -> tuple[list[LoadedRun], str]:
    """Return the runs to explore side by side, with the examples of a file, and the initial text."""
    from attent.explorer.loaded_run import load_run, with_examples

    run, second_run = runs
    load = partial(load_run, device=loading.torch_device(), trust_code=loading.trust_code)
    first = load(run)
    examples, file_text = _read_file(first, exploration.file)
    if exploration.text and file_text:
        raise ArgumentError("give --text or --file, not both")
    loaded_runs = [first] if second_run is None else [first, load(second_run)]
    return [with_examples(loaded_run, examples) for loaded_run in loaded_runs], exploration.text or file_text


def _read_file(run: LoadedRun, file: str | None) -> tuple[Data | None, str]:
    """Return the examples in a file if the run classifies pictures or vectors, or else its text."""
    kind = run.describe()["reads"]
    if kind != "texts":
        from attent.tasks.classification.unlabelled import read_examples

        if file is None:
            raise ArgumentError(f"this run reads {kind}: name a file of them with --file, as for attent classify")
        return read_examples(run.tool, file, say)[1], ""
    return None, "" if file is None else _text_of(file)


def _text_of(file: str) -> str:
    if file != "-" and not Path(file).is_file():
        raise ArgumentError(f"--file {file} is not a file: give a text with --text")
    return " ".join(line.strip() for line in source_lines(file))
