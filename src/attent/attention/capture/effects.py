"""Effects of patches as a table, and the file that a patching writes and continues after a kill."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from attent import bounded
from attent.errors import DataError, refuse

# Maximum bytes of a file of effects.
LARGEST = 2**30


class HeadEffect(NamedTuple):
    """The effect of one patch.

    Args:
        path: the path of the attention module.
        layer: its number, in order of computation.
        head: the head.
        position: the position that was patched; None if all were.
        effect: (patched − corrupt) / (clean − corrupt), of the means over the pairs.
    """

    path: str
    layer: int
    head: int
    position: int | None
    effect: float


@dataclass(frozen=True)
class PatchEffects:
    """The effects of patches, one for each head, or for each head and position.

    Args:
        activation: what was patched, such as "output".
        direction: "denoise" if clean activations were put into the corrupt run, "noise" for the reverse.
        paths: the attention modules, in order of computation; L of them.
        clean: the metric of the clean inputs, (B,).
        corrupt: that of the corrupt inputs, (B,).
        values: that of each patched run, (L, H, B) or (L, H, T, B).
    """

    activation: str
    direction: str
    paths: tuple[str, ...]
    clean: Tensor
    corrupt: Tensor
    values: Tensor

    @property
    def effects(self) -> Tensor:
        """(patched − corrupt) / (clean − corrupt) of the means over the pairs, (L, H) or (L, H, T).

        0 is the corrupt run and 1 the clean run, in both directions.
        """
        return self.effects_of(self.values)

    def effects_of(self, values: Tensor) -> Tensor:
        """Return the effects (…) of values (…, B)."""
        corrupt = self.corrupt.mean()
        return (values.mean(-1) - corrupt) / (self.clean.mean() - corrupt)

    def top(self, count: int = 10) -> list[HeadEffect]:
        """Return the patches that move the metric most, largest first, in either sense."""
        effects = self.effects
        moves = (effects - float(self.direction == "noise")).abs().flatten()
        result: list[HeadEffect] = []
        for index in moves.argsort(descending=True, stable=True)[:count]:
            layer, head, *position = map(int, torch.unravel_index(index, effects.shape))
            effect = effects[(layer, head, *position)].item()
            result.append(HeadEffect(self.paths[layer], layer, head, position[0] if position else None, effect))
        return result

    def to_dict(self) -> dict[str, Any]:
        """Return everything as numbers, lists and strings, for JSON."""
        tensors = {"clean": self.clean, "corrupt": self.corrupt, "values": self.values, "effects": self.effects}
        texts = {"activation": self.activation, "direction": self.direction, "paths": [*self.paths]}
        return texts | {name: tensor.tolist() for name, tensor in tensors.items()}

    def __str__(self) -> str:
        """Return a table of layers × heads; by position, the largest effect of each head, and the first ten patches."""
        effects, lines = self.effects, list[str]()
        if effects.dim() == 3:
            move = (effects - float(self.direction == "noise")).abs().argmax(-1, keepdim=True)
            lines += [
                f"{path}, head {head}, position {position}: {effect:+.3f}"
                for path, _, head, position, effect in self.top()
            ]
            effects = effects.gather(-1, move)[..., 0]
        width = max(map(len, self.paths))
        header = " " * width + "".join(f"{head:>8}" for head in range(effects.shape[1]))
        table = [
            path.ljust(width) + "".join(f"{effect:+8.3f}" for effect in row)
            for path, row in zip(self.paths, effects.tolist(), strict=True)
        ]
        title = f"{self.activation}, {self.direction}: clean {self.clean.mean():.4g}, corrupt {self.corrupt.mean():.4g}"
        return "\n".join([title, header, *table, *lines])


class EffectFile:
    """A file of JSON lines, one for each patch, which the same patching continues.

    The first line holds the facts that the values depend on. Every line is synced to disk when it is written; a line
    that a killed process left unfinished is removed.

    Args:
        path: the file.
        facts: the facts, JSON-serializable.

    Attributes:
        values: the values of each finished patch, by layer, head and position.

    Raises:
        ArgumentError: the file was made with other facts.
        DataError: the file is damaged, or is not a regular file.
    """

    def __init__(self, path: Path | str, facts: Mapping[str, Any]) -> None:
        path, header = Path(path), json.dumps(facts, sort_keys=True)
        self.values: dict[tuple[int, int, int | None], list[float]] = {}
        text = bounded.read_text(path, LARGEST) if path.exists() else ""
        complete = text[: text.rfind("\n") + 1]
        first, *lines = complete.splitlines() or [header]
        refuse((first != header, f"{path} belongs to another model, other inputs or other settings: name another file"))
        for number, line in enumerate(lines, start=2):
            try:
                cell = json.loads(line)
                self.values[cell["layer"], cell["head"], cell["position"]] = [*map(float, cell["values"])]
            except (ValueError, TypeError, KeyError) as error:
                raise DataError(f"{path}, line {number} is damaged: remove it to compute its patch again") from error
        self._file = open(path, "r+b" if path.exists() else "w+b", opener=bounded.regular)  # noqa: SIM115
        self._file.truncate(self._file.seek(len(complete.encode())))
        if not complete:
            self._write(header)

    def write(self, layer: int, head: int, position: int | None, values: Sequence[float]) -> None:
        """Write the values (B,) of a patch."""
        self._write(json.dumps({"layer": layer, "head": head, "position": position, "values": [*values]}))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _write(self, line: str) -> None:
        self._file.write(f"{line}\n".encode())
        self._file.flush()
        os.fsync(self._file.fileno())


def tensor_digest(tensors: Iterable[tuple[str, Any]]) -> str:
    """Return the SHA-256 of values by name, of which tensors enter with type, shape and bytes."""
    digest = hashlib.sha256()
    for name, value in tensors:
        if isinstance(value, Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        else:
            digest.update(f"{name} {value!r}".encode())
    return digest.hexdigest()
