"""attent quantize: another type of weights for a run."""

from __future__ import annotations

from typing import Annotated

from attent.cli.options import DType, RunFolder, TrustCode
from attent.errors import ArgumentError
from attent.setting import Help


def quantize(
    run: RunFolder,
    dtype: Annotated[DType, Help("Type of the weights; float32 undoes it.")] = DType.int8,
    trust_code: TrustCode = False,
) -> None:
    """Store a Transformer's weights in 8 bits for searches: smaller, faster, and almost as good.

    The packed weights are written into the run folder, beside those of training, which are kept; a search maps them
    into memory. Processors of all kinds give the same sums. On a GPU, and wherever attention weights are needed, the
    model computes in float32.
    """
    from attent.runs.config import read_config
    from attent.runs.durable import held
    from attent.runs.folder import MODEL, read
    from attent.runs.packed import write_packed

    # refuses what is no run folder before its lock is written into it
    read_config(run)
    with held(run):
        loaded = read(run, trust_code=trust_code)
        if loaded.config.state == "unfinished":
            raise ArgumentError(f"{run} is unfinished; attent train --resume {run} goes on with it")
        size, before = write_packed(run, loaded, dtype.value), (run / MODEL).stat().st_size
    saved = f", {size / 2**20:,.1f} MiB for {before / 2**20:,.1f}" if size else ""
    print(f"{run} computes in {dtype.value}{saved}")
