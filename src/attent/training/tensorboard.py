"""The training log as TensorBoard events; TensorBoard is an optional dependency."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from attent.errors import ArgumentError, needs

FOLDER = "tensorboard"


def check_installed() -> None:
    """Check that TensorBoard is installed.

    Raises:
        ArgumentError: it is missing.
    """
    with needs("training.tensorboard needs TensorBoard", "tensorboard", ArgumentError):
        import_module("torch.utils.tensorboard")


class TensorBoard:
    """Writes the numbers of log records as TensorBoard scalars.

    Args:
        run: the run folder.
        update: the update that training resumes from; later events are purged.

    Raises:
        ArgumentError: TensorBoard is not installed.
    """

    def __init__(self, run: Path | str, update: int = 0) -> None:
        check_installed()
        from torch.utils.tensorboard import SummaryWriter  # pyright: ignore[reportPrivateImportUsage]

        self._writer = SummaryWriter(str(Path(run) / FOLDER), purge_step=update + 1)

    def log(self, record: Mapping[str, Any]) -> None:
        """Write the numbers of a record; records without an update are ignored."""
        if "update" not in record:
            return
        numbers = {f"training/{name}": value for name, value in record.items() if name not in ("update", "validation", "samples")}
        numbers |= {f"validation/{name}": value for name, value in record.get("validation", {}).items()}
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, record["update"])
        self._writer.flush()
