"""A forward pass of a run over one text: its attention maps and the names of its outputs.

Each kind of run has it, for `attent walk`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attent.attention.maps.attention_map import LabelledMap
from attent.models.model import Model


@dataclass(frozen=True)
class ForwardPass:
    """A text, and a function that runs the model over it, to be watched.

    Args:
        title: the text, with what the run makes of it.
        model: the run's.
        run: reads the text once, and returns every map by the name of its module.
        stack: the name of the module of layers whose features the output layer reads.
        output_name: the word or class of an output's index.
        outputs: what an output is, such as "words".
        first: the index of the first output that counts.
        rows: the positions with an output; all of them if None.
    """

    title: str
    model: Model
    run: Callable[[], dict[str, LabelledMap]]
    stack: str
    output_name: Callable[[int], str]
    outputs: str = "words"
    first: int = 0
    rows: Sequence[int] | None = None
