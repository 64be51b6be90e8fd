"""A model as a tree of its parts, with equations, shapes and parameter counts."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import nn

from attent.attention.multihead import MultiHeadAttention
from attent.layers.residual import Residual
from attent.views.step import equation_of, first_line


def describe(model: nn.Module, title: str = "") -> str:
    """Return the tree as text.

    Consecutive equal layers are shown once, with their number. A shared parameter is shown and counted at its first
    occurrence.

    Args:
        model: any module.
        title: the name of the model; its class by default.
    """
    tree = _Branch(title or type(model).__name__)
    _add_children(tree, model, set())
    parameters = list(model.parameters())
    size = sum(parameter.numel() * parameter.element_size() for parameter in parameters) / 2**20
    total = f"{sum(parameter.numel() for parameter in parameters):,} parameters in all, {size:,.1f} MiB"
    return "\n".join([*tree.lines(), total])


def equation(part: object) -> str:
    """Return the equation in the docstring of a part's class, empty if there is none.

    If there are equations named post and pre, the one that applies to the part is returned.
    """
    if type(part).__module__.startswith("torch."):
        return ""
    text = inspect.cleandoc(type(part).__doc__ or "").split("\nArgs:")[0]
    # A semicolon continues an equation on the next, indented line.
    text = re.sub(r"; *\n {8,}(?=\S)", ";  ", text)
    lines = [re.sub(r" {2,}", "  ", line) for line in re.findall(r"^ +(\S.* = .*)$", text, re.MULTILINE)]
    norm = (
        "pre: "
        if isinstance(part, nn.Module) and any(isinstance(child, Residual) and child.pre for child in part.children())
        else "post: "
    )
    of_norm = [line.removeprefix(norm) for line in lines if line.startswith(norm)]
    return next(iter([*of_norm, *lines]), "")


@dataclass
class _Branch:
    """A line of the tree with the branches below it."""

    line: str
    branches: list[_Branch] = field(default_factory=list)

    def add(self, line: str) -> _Branch:
        self.branches.append(_Branch(line))
        return self.branches[-1]

    def lines(self) -> Iterator[str]:
        yield self.line
        for branch in self.branches:
            first, rest = ("└── ", "    ") if branch is self.branches[-1] else ("├── ", "│   ")
            for index, line in enumerate(branch.lines()):
                yield (rest if index else first) + line


def _add(tree: _Branch, name: str, module: nn.Module, drawn_ids: set[int], note: str = "") -> None:
    """Add a module; `drawn_ids` holds the ids of the parameters shown so far."""
    branch = tree.add(_line(name, module, drawn_ids, note))
    if isinstance(module, MultiHeadAttention):
        _add_attention(branch, module, drawn_ids)
    else:
        _add_children(branch, module, drawn_ids)
    drawn_ids.update(map(id, module.parameters()))


def _add_children(branch: _Branch, module: nn.Module, drawn_ids: set[int]) -> None:
    if not isinstance(module, nn.Linear | nn.LayerNorm):
        for name, parameter in module.named_parameters(recurse=False):
            shape = " × ".join(map(str, parameter.shape))
            branch.add(f"{name}  {shape}{'   shared' if id(parameter) in drawn_ids else ''}")
    children: list[tuple[str, str, nn.Module]] = []
    for name, child in module.named_children():
        parts = child.named_children() if isinstance(child, nn.ModuleList) else [("", child)]
        children += [
            (name, index, part) for index, part in parts if equation(part) or any(True for _ in part.parameters())
        ]
    while children:
        name, index, child = children[0]
        count = 1
        while index and count < len(children) and children[count][0] == name and _are_equal(child, children[count][2]):
            count += 1
        _add(
            branch,
            f"{name} {index} to {children[count - 1][1]}, each" if count > 1 else f"{name} {index}".rstrip(),
            child,
            drawn_ids,
        )
        for _, _, repeated in children[1:count]:
            drawn_ids.update(map(id, repeated.parameters()))
        children = children[count:]


def _add_attention(branch: _Branch, attention: MultiHeadAttention, drawn_ids: set[int]) -> None:
    for letter, projection in zip(
        "QKV", (attention.query_projection, attention.key_projection, attention.value_projection), strict=True
    ):
        _add(branch, f"W_{letter}", projection, drawn_ids)
    if attention.position is not None:
        _add(branch, "position", attention.position, drawn_ids, first_line(attention.position))
    _add(branch, "score", attention.score, drawn_ids, equation_of(attention.score))
    normalizer = attention.normalizer
    branch.add(f"normalizer  {type(normalizer).__name__}   {first_line(normalizer)}")
    if attention.output is not None:
        _add(branch, "W_O", attention.output, drawn_ids)


def _line(name: str, module: nn.Module, drawn_ids: set[int], note: str) -> str:
    line = f"{name}  {_summary(module)}"
    if note := note or equation(module):
        line += f"   {note}"
    sizes = {id(parameter): parameter.numel() for parameter in module.parameters()}
    if count := sum(size for key, size in sizes.items() if key not in drawn_ids):
        line += f"   {count:,}"
    elif sizes:
        line += "   shared"
    return line


def _summary(module: nn.Module) -> str:
    match module:
        case MultiHeadAttention():
            shared = f", {module.key_value_heads} of keys and values" if module.key_value_heads != module.heads else ""
            return f"MultiHeadAttention, {module.heads} heads of width {module.key_width}{shared}"
        case nn.Linear():
            return f"Linear {module.in_features} → {module.out_features}"
        case nn.LayerNorm():
            return f"LayerNorm {' × '.join(map(str, module.normalized_shape))}"
        case _:
            return type(module).__name__


def _are_equal(first: nn.Module, second: nn.Module) -> bool:
    shapes = [[(name, parameter.shape) for name, parameter in module.named_parameters()] for module in (first, second)]
    return shapes[0] == shapes[1] and repr(first) == repr(second)
