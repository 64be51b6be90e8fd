"""Ray Data: translation of data sets on many machines, by actors that each load the run once."""

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
    """Translates a column of a batch of Ray Data: the callable class that `map_batches` makes an actor of.

    Args:
        run: the run folder, which every machine must have at this path.
        column: of the texts, a sentence each.
        output: the new column, of their translations.
        settings: of the search.
        device: of the model.
        dtype: the type of weights; the run's own unless given.
        trust_code: whether the run may name modules to import.
        threads: of torch.

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

        Each is what `attent translate` would write, or None for a missing text.

        Raises:
            ArgumentError: it has no such column, or a value of it is no text.
        """
        if self._column not in batch:
            raise ArgumentError(f"the data set has no column {self._column!r} but {', '.join(batch)}")
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
    """Translate a data set of Ray Data, lazily; the order of its rows is kept, and a worker that is lost is replaced.

    Example:
        >>> texts = ray.data.read_text("sentences.txt")
        >>> translate(texts, "/shared/runs/en-de", workers=64).write_parquet("/shared/out")

    Args:
        dataset: with a column of texts.
        run: the run folder, which every machine must have at this path.
        workers: actors, a processor core each; fewer than the cluster has, since reading needs one, too.
        batch_rows: of a call.
        gpus: of each actor, such as 1 or 0.25.
        options: of `ColumnTranslator`: column, output, settings, dtype and others.

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
