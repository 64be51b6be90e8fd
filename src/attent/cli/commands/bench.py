"""attent bench: the speed of a run on this machine, and the machine's calibration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from attent.cli.options import AUTO, Device, Json, TrustCode, Weights, device_of
from attent.cli.output import say
from attent.devices import limit_threads
from attent.errors import refuse
from attent.setting import Bound, Help


def bench(
    run: Annotated[Path | None, typer.Argument(help="The run folder of a translator or a language model.")] = None,
    file: Annotated[Path | None, typer.Argument(help="Lines for a translator to translate.")] = None,
    calibrate: Annotated[bool, Help("Measure which attention is faster on this machine, and use it.")] = False,
    threads: Annotated[int | None, Bound(1), Help("Number of threads; PyTorch's default unless given.")] = None,
    dtype: Weights = None,
    device: Device = AUTO,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Measure how fast a run translates, or generates text, on this machine.

    A translator translates up to 1,000 lines greedily and with a beam of 5. The table has lines per second by batch
    size, and the median and 95th percentile of the milliseconds for one line. A language model generates 64 tokens for
    1, 8 and 32 texts. The fastest of three rounds counts. The table is printed in Markdown.

    --calibrate takes about half a minute, writes its choice to a small file, and prints the file's path.
    """
    refuse(
        (calibrate and run is not None, "--calibrate measures the machine, not a run: attent bench --calibrate"),
        (not calibrate and run is None, "name a run folder: attent bench RUN, or attent bench --calibrate"),
    )
    with limit_threads(threads):
        if run is None:
            from attent.benchmark.calibration import calibrate as calibrate_machine

            report = calibrate_machine(say=say)
        else:
            from attent.benchmark.speed import measure

            weights = dtype.value if dtype else None
            report = measure(run, file, device=device_of(device), trust_code=trust_code, dtype=weights, say=say)
    text = json.dumps(report.values(), indent=2, ensure_ascii=False) if as_json else "\n".join(report.lines()).lstrip()
    print(text)
