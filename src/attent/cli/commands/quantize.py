"""attent quantize: store a run's weights in another data type."""

from typing import Annotated

from attent.cli.options import DType, RunFolder, TrustCode
from attent.errors import ArgumentError
from attent.setting import Help


def quantize(
    run: RunFolder,
    dtype: Annotated[DType, Help("Type of the weights; float32 removes the packed ones.")] = DType.int8,
    trust_code: TrustCode = False,
) -> None:
    """Store a Transformer's weights in 8 bits for searches: smaller, faster, and almost as accurate.

    The packed weights are written into the run folder, and the trained weights are kept. Searches map the packed
    weights into memory. All processors compute the same sums. On a GPU, or when attention weights are needed, the model
    computes in float32.
    """
    from attent.runs.config import read_config
    from attent.runs.durable import held
    from attent.runs.folder import MODEL, read
    from attent.runs.packed import write_packed

    # fails here if this is not a run folder, before a lock file is written into it
    read_config(run)
    with held(run):
        loaded = read(run, trust_code=trust_code)
        if loaded.config.state == "unfinished":
            raise ArgumentError(f"{run} is unfinished: resume it with attent train --resume {run}")
        size, before = write_packed(run, loaded, dtype.value), (run / MODEL).stat().st_size
    saved = f", {size / 2**20:,.1f} MiB instead of {before / 2**20:,.1f}" if size else ""
    print(f"{run} computes in {dtype.value}{saved}")
