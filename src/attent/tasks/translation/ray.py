"""Translation of Ray Data data sets on many machines, with actors that each load the run once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from attent.errors import ArgumentError, needs
from attent.runs.config import DType
from attent.search.settings import GREEDY, SearchSettings
from attent.tasks.translation.translator import load

if TYPE_CHECKING:
    from ray.data import Dataset  # pyright: ignore[reportMissingImports]

EXTRA = "ray"
# Rows per batch: enough to sort by length, few enough to repeat when a worker is lost.
BATCH_ROWS = 512
# Text forms of the missing values of Python, NumPy and pandas.
MISSING = frozenset(("None", "nan", "NaT", "<NA>"))


class ColumnTranslator:
    """Translates a column of a Ray Data batch; a callable class that `map_batches` runs as an actor.

    Args:
        run: the run folder, which every machine must have at this path.
        column: the column of texts, one sentence each.
        output: the new column of translations.
        settings: search settings.
        device: device of the model.
        dtype: weight type; the run's own by default.
        trust_code: whether the run may name modules to import.
        threads: number of torch threads.

    Raises:
        RunError: the run is missing or damaged.
    """

    def __init__(
        self,
        run: str | Path,
        *,
        column: str = "text",
        output: str = "translation",
        settings: SearchSettings = GREEDY,
        device: str = "cpu",
        dtype: DType | None = None,
        trust_code: bool = False,
        threads: int = 1,
    ) -> None:
        torch.set_num_threads(threads)
        self._translator = load(run, device, trust_code=trust_code, dtype=dtype)
        self._column, self._output, self._settings = column, output, settings

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the batch with the translations beside the texts.

        Each translation is what `attent translate` would write, or None for a missing text.

        Raises:
            ArgumentError: the batch has no such column, or a value in it is not text.
        """
        if self._column not in batch:
            raise ArgumentError(f"the data set has no column {self._column!r}, only {', '.join(batch)}")
        texts = [self._text(value) for value in batch[self._column]]
        translations = iter(self._translator.translate([text for text in texts if text is not None], self._settings))
        return {**batch, self._output: [None if text is None else next(translations) for text in texts]}

    def _text(self, value: object) -> str | None:
        """Return a value as a text; None for a missing one."""
        if isinstance(value, str):
            return str(value)
        if str(value) not in MISSING:
            raise ArgumentError(
                f"column {self._column!r} must hold texts, got {type(value).__name__} {str(value)[:60]!r}"
            )
        return None


def translate(
    dataset: Dataset, run: str | Path, *, workers: int, batch_rows: int = BATCH_ROWS, gpus: float = 0, **options: Any
) -> Dataset:
    """Translate a Ray Data data set lazily; the order of rows is kept, and lost workers are replaced.

    Example:
        >>> texts = ray.data.read_text("sentences.txt")
        >>> translate(texts, "/shared/runs/en-de", workers=64).write_parquet("/shared/out")

    Args:
        dataset: a data set with a column of texts.
        run: the run folder, which every machine must have at this path.
        workers: number of actors, each using one core; fewer than the cluster has, since reading needs a core too.
        batch_rows: rows per call.
        gpus: GPUs per actor, such as 1 or 0.25.
        options: further arguments of `ColumnTranslator`: column, output, settings, dtype and others.

    Raises:
        AttentError: Ray is not installed.
    """
    with needs("data sets of Ray Data need Ray", EXTRA):
        from ray.data import ActorPoolStrategy  # pyright: ignore[reportMissingImports]
    # a data set keeps the context in which it was made
    dataset.context.execution_options.preserve_order = True
    named = {"run": str(run), **({"device": "cuda"} if gpus else {}), **options}
    return dataset.map_batches(
        ColumnTranslator,
        fn_constructor_kwargs=named,
        batch_size=batch_rows,
        compute=ActorPoolStrategy(size=workers),
        num_cpus=1,
        num_gpus=gpus or None,
    )
