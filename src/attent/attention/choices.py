"""Parts of attention from the caller's arguments: names, aliases, "my.module:Class", functions, modules.

A part that needs no arguments may be given by name. A part with parameters or required arguments is a module that the
caller builds and owns; its bare name raises an error.
"""

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
from attent.errors import ArgumentError, MissingArgumentError, ShapeError, brief


class Own(Score):
    """A custom score: a function or module `score(query, key)` that is not a Score. It runs tiled.

    Args:
        function: maps queries (B, H, Tq, Dq) and keys (B, H, Tk, Dk) to scores (B, H, Tq, Tk).
    """

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """Call the function and check the shape of its scores, (B, H, Tq, Tk).

        Raises:
            ShapeError: the result is not a tensor of that shape.
        """
        scores = self.function(query, key)
        expected = (*query.shape[:-1], key.shape[-2])
        if not isinstance(scores, Tensor) or tuple(scores.shape) != expected:
            actual = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ShapeError(f"a score must return (B, H, Tq, Tk) = {expected}, got {actual}")
        return scores


def _required_arguments(part: type[Any]) -> list[str]:
    """Return the names of a part's arguments that have no default."""
    parameters = inspect.signature(part).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is inspect.Parameter.empty and parameter.kind in kinds
    ]


def _can_build(method: Any, inherited: Any, part: type[Any]) -> bool:
    """Return whether a class method can build the part; the inherited method passes no arguments."""
    return method.__func__ is not inherited.__func__ or not _required_arguments(part)


class _Named:
    """The parts of one kind by name; those without arguments are built once, outside of compiled graphs."""

    def __init__(self, kind: str, parts: dict[str, type[Any]]) -> None:
        self.kind = kind
        self.table = registry.with_aliases(parts)
        self.names_without_arguments = [name for name, part in parts.items() if not _required_arguments(part)]
        built = {parts[name]: parts[name]() for name in self.names_without_arguments}
        self.ready = {name: built[part] for name, part in self.table.items() if part in built}

    def part(self, name: str) -> Any:
        """Return the part of this name, built without arguments if it is a class."""
        if name in self.ready:
            return self.ready[name]
        part = registry.find(self.kind, name, self.table)
        if not isinstance(part, type):
            return part
        self.check_arguments(name, part)
        return part()

    def check_arguments(self, name: str, part: object, builder: str = "") -> None:
        """Raise MissingArgumentError if the part is a class with required arguments.

        `builder` is the class method that models call instead.
        """
        if isinstance(part, type) and _required_arguments(part):
            raise MissingArgumentError(
                f"{self.kind} {name!r} needs arguments that its name alone does not provide: "
                f"pass an instance that you keep, {self.constructor_expression(name)}"
                + (f", or give its class {builder}" if builder else "")
            )

    def constructor_expression(self, name: str) -> str | None:
        """Return the Python expression that builds a part with required arguments; None if its name is enough."""
        part = registry.find(self.kind, name, self.table)
        required = _required_arguments(part) if isinstance(part, type) else []
        return f"{self.kind}={part.__name__}({', '.join(required)})" if required else None


_scores, _normalizers = _Named("score", dict(SCORES)), _Named("normalizer", dict(NORMALIZERS))
_masks, _positions = _Named("mask", dict(MASKS)), _Named("position", dict(POSITIONS))
_kinds = {named.kind: named for named in (_scores, _normalizers, _masks, _positions)}


def missing(kind: str, name: str) -> tuple[str, list[str]] | None:
    """Return the Python expression that builds a part, and the names of the parts that need no arguments.

    None if this part needs no arguments.

    Args:
        kind: "score", "normalizer", "mask" or "position".
        name: a part's name, an alias, or "my.module:Class".

    Raises:
        UnknownNameError, ArgumentError: the name is unknown.
    """
    expression = _kinds[kind].constructor_expression(name)
    return None if expression is None else (expression, _kinds[kind].names_without_arguments)


def score(argument: str | Score | nn.Module | Callable[[Tensor, Tensor], Tensor]) -> Score:
    """Return the Score for a name, a Score or a function.

    Raises:
        UnknownNameError, MissingArgumentError, ArgumentError: the name is unknown, the score needs parameters, or the
            argument is not a score.
    """
    part = _scores.part(argument) if isinstance(argument, str) else argument
    if isinstance(part, Score):
        return part
    if not callable(part) or isinstance(part, type):
        raise ArgumentError(f"score must be a name, a Score or a function (query, key) → scores, got {brief(argument)}")
    return Own(part)  # pyright: ignore[reportArgumentType]


def score_for(
    argument: str | Score | nn.Module | Callable[[Tensor, Tensor], Tensor], query_width: int, key_width: int, heads: int
) -> Score:
    """Return the Score for a name, built for these widths and heads; other arguments as in `score`."""
    if isinstance(argument, str):
        part = registry.find("score", argument, _scores.table)
        if isinstance(part, type) and issubclass(part, Score) and _can_build(part.for_widths, Score.for_widths, part):
            return part.for_widths(query_width, key_width, heads)
        if registry.is_imported(argument):
            _scores.check_arguments(argument, part, "for_widths")
    return score(argument)


def normalizer(argument: str | Normalizer) -> Normalizer:
    """Return the normalizer for a name, or the Normalizer itself; raises as `score` does."""
    part = _normalizers.part(argument) if isinstance(argument, str) else argument
    if not isinstance(part, Normalizer):
        raise ArgumentError(f"normalizer must be a name or a Normalizer, got {brief(argument)}")
    return part


def mask(argument: str | Mask | None) -> Mask | None:
    """Return the mask for a name, or the Mask itself; raises as `score` does."""
    part = _masks.part(argument) if isinstance(argument, str) else argument
    if part is not None and not isinstance(part, Mask):
        remedy = "; convert it with torch.as_tensor" if isinstance(argument, list | tuple) else ""
        raise ArgumentError(f"mask must be a name, a Mask or a boolean tensor, got {brief(argument)}{remedy}")
    return part


def position(argument: str | Position | None) -> Position | None:
    """Return the position for a name, or the Position itself, which must act inside attention.

    Raises as `score` does.
    """
    if isinstance(argument, str) and getattr(_positions.table.get(argument), "added", False):
        raise ArgumentError(
            f"position {argument!r} is added to embeddings, before attention; inside attention, use rotary, alibi or "
            "relative_bias"
        )
    part = _positions.part(argument) if isinstance(argument, str) else argument
    if part is not None and not isinstance(part, Position):
        raise ArgumentError(f"position must be a name or a Position that acts inside attention, got {brief(argument)}")
    return part


def position_for(argument: str | Position | None, heads: int) -> Position | None:
    """Return the position for a name, built for this number of heads; other arguments as in `position`."""
    if isinstance(argument, str):
        part = registry.find("position", argument, _positions.table)
        if (
            isinstance(part, type)
            and issubclass(part, Position)
            and _can_build(part.for_heads, Position.for_heads, part)
        ):
            return part.for_heads(heads)
        if registry.is_imported(argument):
            _positions.check_arguments(argument, part, "for_heads")
    return position(argument)
