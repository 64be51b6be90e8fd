"""attent calibrate: measure which attention is faster on this machine."""

from __future__ import annotations

import json
from typing import Annotated

from attent.cli.options import Json
from attent.cli.output import say
from attent.devices import limit_threads
from attent.setting import Bound, Help


def calibrate(
    threads: Annotated[int | None, Bound(1), Help("Number of threads; PyTorch's default unless given.")] = None,
    as_json: Json = False,
) -> None:
    """Measure which attention is faster on this machine, dense attention or PyTorch's, and use it from now on.

    This takes about half a minute. The choice is written to a small file, whose path is printed, and the measurements
    are printed as a table in Markdown.
    """
    from attent.benchmark.calibration import calibrate as calibrate_machine

    with limit_threads(threads):
        report = calibrate_machine(say=say)
    text = json.dumps(report.values(), indent=2, ensure_ascii=False) if as_json else "\n".join(report.lines()).lstrip()
    print(text)
