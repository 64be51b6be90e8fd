"""The choice between dense attention and PyTorch's for each class of processors: one table of measurements.

`attend` itself measures nothing: it uses the row of the processor's class. `scripts/bench calibrate` measures this
machine and chooses one of the rows; its choice is a small file in the user's cache folder, which can be read and
removed.
"""

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from attent.ops.eligibility import constant_in_graphs, processor_class
from attent.ops.onednn import using_onednn


@dataclass(frozen=True)
class MachineRow:
    """Measured thresholds of one class of processors.

    Each is the largest number of keys for which dense attention is faster; None for any number.

    Args:
        name: the name of the row.
        machine: the machine that was measured.
        float32: the number of keys in float32, without gradients.
        float32_gradients: in float32, with gradients.
        bfloat16: in bfloat16, without gradients.
        bfloat16_gradients: in bfloat16, with gradients.
        float16: in float16, without gradients.
        float16_gradients: in float16, with gradients.
        table: with a bias, or a mask whose visible keys are not ranges, which need a table of all pairs; the lower of
            both limits applies.
        table_gradients: the same with gradients.
        table_of_16_bits: the same in 16 bits without gradients, where the table is converted to float32 first.
        onednn: whether float32 products in training use oneDNN; None for the processor's default: yes for AMD with
            AVX-512, no with AVX2.
    """

    name: str
    machine: str
    float32: int | None = None
    float32_gradients: int | None = None
    bfloat16: int | None = None
    bfloat16_gradients: int | None = None
    float16: int | None = None
    float16_gradients: int | None = None
    table: int | None = None
    table_gradients: int | None = None
    table_of_16_bits: int | None = 1024
    onednn: bool | None = None

    def dense_keys(self, dtype: torch.dtype, *, with_gradients: bool, with_table: bool) -> int | None:
        """Return the largest number of keys for which dense attention is faster than PyTorch's; None for any number."""
        if dtype == torch.bfloat16:
            limits = [self.bfloat16_gradients if with_gradients else self.bfloat16]
        elif dtype == torch.float16:
            limits = [self.float16_gradients if with_gradients else self.float16]
        else:
            limits = [self.float32_gradients if with_gradients else self.float32]
        if with_table:
            without = self.table if dtype == torch.float32 else self.table_of_16_bits
            limits.append(self.table_gradients if with_gradients else without)
        return min((limit for limit in limits if limit is not None), default=None)


ROWS = {
    row.name: row
    for row in (
        # Heads of 64: with gradients 25 ms against 47 for 64 causal heads of 256 in float32 and 36 against 44 for all
        # pairs in bfloat16, 32 each for 16 heads of 512; without, 19 against 23 for 8 heads of 1024 in float32, and in
        # bfloat16 PyTorch from 64 keys on. float16 has float32's limits: it was not measured.
        MachineRow("amx", "Intel Xeon with AMX, 2 cores, torch 2.13", 1024, 256, 0, 256, 1024, 256, table=1024),
        # 2.2 to 3.6 times as fast in float32 from 512 to 8,192 keys, 2.9 to 5.4 times in bfloat16. With a table it was
        # level at 1,024 keys while the table was copied and transposed before the kernel; without these copies no limit
        # is left, as measured on AVX2.
        MachineRow("avx512", "AMD EPYC (Zen 5), 2 cores, torch 2.13"),
        # Level with PyTorch's at 128 keys in float32, 1.04 to 1.15 times as fast from 512 to 2,048; from 512 on in
        # bfloat16 1.1 to 6.9 times, in float16 1.9 to 8.9 times. With a bias 1.06 to 1.11 times as fast in float32 at
        # 1,024 to 4,096 keys, 4.3 times beside a causal mask, 1.7 times at 1,024 and 2,048 where it gets a gradient; in
        # bfloat16 0.7 times at 4,096, with gradients 4.9 times.
        MachineRow("avx2", "AMD EPYC (Zen 3), 2 cores, torch 2.13"),
        MachineRow("baseline", "not measured: PyTorch's kernels have wider registers", 0, 0, 0, 0, 0, 0),
    )
}
_rows_in_use: list[MachineRow] = []


def current_row() -> MachineRow:
    """Return the row in effect: that of `using_row`, of the calibration, or of this processor's class."""
    return _rows_in_use[-1] if _rows_in_use else _calibrated_row() or ROWS[processor_class()]


@constant_in_graphs
def dense_keys(dtype: torch.dtype, with_gradients: bool, with_table: bool) -> int | None:
    """Return `MachineRow.dense_keys` of the row in effect; a captured graph keeps that of its capture."""
    return current_row().dense_keys(dtype, with_gradients=with_gradients, with_table=with_table)


@contextmanager
def using_row(row: MachineRow) -> Iterator[None]:
    """Use this row within the block, in all threads."""
    _rows_in_use.append(row)
    try:
        with nullcontext() if row.onednn is None else using_onednn(row.onednn):
            yield
    finally:
        _rows_in_use.pop()


def calibration_file() -> Path:
    """Return the calibration file, in the folder that also holds PyTorch's caches.

    The folder is $XDG_CACHE_HOME, or ~/.cache.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "attent" / "machine.json"


@cache
def _calibrated_row() -> MachineRow | None:
    """Return the calibration's row; None without one, or if the file was written on another class of processor."""
    path = calibration_file()
    try:
        choice = json.loads(path.read_text(encoding="utf-8"))
        return ROWS[choice["row"]] if choice["processor"] == processor_class() else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        warnings.warn(
            f"{path} is not a valid calibration and is ignored: {type(error).__name__}; remove it", stacklevel=2
        )
        return None


def save_calibration(row: MachineRow, costs: dict[str, float]) -> Path:
    """Save the choice of a row with the cost of each row's choices, and use it from now on."""
    path = calibration_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    choice = {"row": row.name, "processor": processor_class(), "torch": str(torch.__version__), "costs": costs}
    path.write_text(json.dumps(choice, indent=2) + "\n", encoding="utf-8", newline="")
    _calibrated_row.cache_clear()
    return path
