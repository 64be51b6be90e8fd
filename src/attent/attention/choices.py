"""From what a caller writes to the part that is meant: names, aliases, "my.module:Class", functions, modules.

A part that is whole without arguments may be given by name; one with parameters, or with a value that has no default, is a
module the caller owns, and its bare name raises.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from attent import registry
from attent.attention.base import Mask, Normalizer, Position, Score
from attent.attention.masks import MASKS
from attent.attention.normalizers import NORMALIZERS
from attent.attention.positions import POSITIONS
from attent.attention.scores import SCORES
from attent.errors import ArgumentError, MissingArgumentError, ShapeError


class Own(Score):
    """A caller's own score: a function or a module `score(query, key)` that is no Score. It runs tiled.

    Args:
        function: takes queries (B, H, Tq, Dq) and keys (B, H, Tk, Dk), returns scores (B, H, Tq, Tk).
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Call the function and check its scores, (B, H, Tq, Tk).

        Raises:
            ShapeError: it is no tensor of that shape.
        """
        scores = self.function(query, key)
        expected = (*query.shape[:-1], key.shape[-2])
        if not isinstance(scores, Tensor) or tuple(scores.shape) != expected:
            came = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ShapeError(f"a score must return (B, H, Tq, Tk) = {expected}, got {came}")
        return scores


def _lacking(part: type[Any]) -> list[str]:
    """The arguments that a part cannot do without."""
    parameters = inspect.signature(part).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty and parameter.kind in kinds]


def _can(built: Any, plain: Any, part: type[Any]) -> bool:
    """Return whether a class method builds the part: its own, or the inherited one, which passes no arguments."""
    return built.__func__ is not plain.__func__ or not _lacking(part)


class _Named:
    """The parts of one kind by name: whole ones built once, so that a compiled graph finds them ready."""

    def __init__(self, kind: str, found: dict[str, type[Any]]) -> None:
        self.kind = kind
        self.table = registry.with_aliases(found)
        self.whole = [name for name, part in found.items() if not _lacking(part)]
        whole = {found[name]: found[name]() for name in self.whole}
        self.ready = {name: whole[part] for name, part in self.table.items() if part in whole}

    def part(self, name: str) -> Any:
        """The part that a name stands for."""
        ready = self.ready.get(name)
        return self._other(name) if ready is None else ready

    def _other(self, name: str) -> Any:
        part = registry.find(self.kind, name, self.table)
        if not isinstance(part, type):
            return part
        if _lacking(part):
            raise MissingArgumentError(
                f"{self.kind} {name!r} has parameters or values that its bare name cannot give: pass one you keep, {self.written(name)}"
            )
        return part()

    def written(self, name: str) -> str | None:
        """Return the Python expression of a part that needs arguments; None if its name is enough."""
        part = registry.find(self.kind, name, self.table)
        lacking = _lacking(part) if isinstance(part, type) else []
        return f"{self.kind}={part.__name__}({', '.join(lacking)})" if lacking else None


_scores, _normalizers = _Named("score", dict(SCORES)), _Named("normalizer", dict(NORMALIZERS))
_masks, _positions = _Named("mask", dict(MASKS)), _Named("position", dict(POSITIONS))
_kinds = {named.kind: named for named in (_scores, _normalizers, _masks, _positions)}


def missing(kind: str, name: str) -> tuple[str, list[str]] | None:
    """Return the Python expression of a part that needs arguments, and the names that need none; None if this name needs none.

    Args:
        kind: "score", "normalizer", "mask" or "position".
        name: a part's name, an alias, or "my.module:Class".

    Raises:
        UnknownNameError, ArgumentError: nothing bears the name.
    """
    written = _kinds[kind].written(name)
    return None if written is None else (written, _kinds[kind].whole)


def ready(score: object, normalizer: object, mask: object) -> bool:
    """Return whether all three are names of parts built once, or there is no mask."""
    if not (isinstance(score, str) and isinstance(normalizer, str) and (mask is None or isinstance(mask, str))):
        return False
    return score in _scores.ready and normalizer in _normalizers.ready and (mask is None or mask in _masks.ready)


def score(given: str | Score | nn.Module | Callable[[Tensor, Tensor], Tensor]) -> Score:
    """The score that is meant.

    Raises:
        UnknownNameError, MissingArgumentError, ArgumentError: nothing bears the name, it needs parameters, or it is no score.
    """
    found = _scores.part(given) if isinstance(given, str) else given
    if isinstance(found, Score):
        return found
    if not callable(found) or isinstance(found, type):
        raise ArgumentError(f"score must be a name, a Score or a function (query, key) → scores, got {given!r}")
    return Own(found)  # pyright: ignore[reportArgumentType]


def score_for(given: str | Score | nn.Module | Callable[[Tensor, Tensor], Tensor], query_width: int, key_width: int, heads: int) -> Score:
    """The score that is meant, built from its name by a module that knows the widths."""
    if isinstance(given, str):
        part = registry.find("score", given, _scores.table)
        if isinstance(part, type) and issubclass(part, Score) and _can(part.for_widths, Score.for_widths, part):
            return part.for_widths(query_width, key_width, heads)
    return score(given)


def normalizer(given: str | Normalizer) -> Normalizer:
    """The normalizer that is meant; raises as `score` does."""
    found = _normalizers.part(given) if isinstance(given, str) else given
    if not isinstance(found, Normalizer):
        raise ArgumentError(f"normalizer must be a name or a Normalizer, got {given!r}")
    return found


def mask(given: str | Mask | None) -> Mask | None:
    """The mask that is meant; raises as `score` does."""
    found = _masks.part(given) if isinstance(given, str) else given
    if found is not None and not isinstance(found, Mask):
        raise ArgumentError(f"mask must be a name, a Mask or a boolean tensor, got {given!r}")
    return found


def position(given: str | Position | None) -> Position | None:
    """The position that is meant, of the kinds that act inside attention; raises as `score` does."""
    if isinstance(given, str) and getattr(_positions.table.get(given), "added", False):
        raise ArgumentError(f"position {given!r} is added to embeddings, before attention; inside it act rotary, alibi and relative_bias")
    found = _positions.part(given) if isinstance(given, str) else given
    if found is not None and not isinstance(found, Position):
        raise ArgumentError(f"position must be a name or a Position that acts inside attention, got {given!r}")
    return found


def position_for(given: str | Position | None, heads: int) -> Position | None:
    """The position that is meant, built from its name by a module that knows the number of heads."""
    if isinstance(given, str):
        part = registry.find("position", given, _positions.table)
        if isinstance(part, type) and issubclass(part, Position) and _can(part.for_heads, Position.for_heads, part):
            return part.for_heads(heads)
    return position(given)
