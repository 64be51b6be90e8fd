"""A model as a tree of its parts: what each computes, its shapes, and how many parameters it has."""

from __future__ import annotations

import inspect
import re

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree
from torch import nn

from attent.attention.multihead import MultiHeadAttention
from attent.views.step import equation_of

MEBIBYTE = 2**20


def describe(model: nn.Module, title: str = "") -> RenderableType:
    """The tree, for rich to print.

    Layers that stand in a row and are built alike are drawn once, with their number. A parameter that serves in several
    places is drawn and counted where it comes first.

    Args:
        model: any module.
        title: what the model is called; its class unless given.
    """
    tree = Tree(Text(title or type(model).__name__, "bold"))
    _children(tree, model, set())
    parameters = list(model.parameters())
    size = sum(parameter.numel() * parameter.element_size() for parameter in parameters) / MEBIBYTE
    total = Text(f"{sum(parameter.numel() for parameter in parameters):,} parameters in all, {size:,.1f} MiB")
    return Group(tree, total)


def equation(part: object) -> str:
    """The first equation in the docstring of a part's class; empty where there is none."""
    if type(part).__module__.startswith("torch."):
        return ""
    said = inspect.cleandoc(type(part).__doc__ or "").split("\nArgs:")[0]
    found = re.search(r"^ +(\S.* = .*)$", said, re.MULTILINE)
    return re.sub(r" {2,}", "  ", found.group(1)) if found else ""


def _draw(tree: Tree, name: str, module: nn.Module, seen: set[int], says: str = "") -> None:
    branch = tree.add(_line(name, module, seen, says))
    if isinstance(module, MultiHeadAttention):
        _attention(branch, module, seen)
    else:
        _children(branch, module, seen)
    seen.update(map(id, module.parameters()))


def _children(branch: Tree, module: nn.Module, seen: set[int]) -> None:
    if not isinstance(module, nn.Linear | nn.LayerNorm):
        for name, parameter in module.named_parameters(recurse=False):
            shape = " × ".join(map(str, parameter.shape))
            branch.add(Text.assemble((name, "bold"), f"  {shape}", ("" if id(parameter) not in seen else "   shared", "dim")))
    children: list[tuple[str, str, nn.Module]] = []
    for name, child in module.named_children():
        inside = child.named_children() if isinstance(child, nn.ModuleList) else [("", child)]
        children += [(name, place, part) for place, part in inside if _worth_drawing(part)]
    while children:
        name, place, child = children[0]
        alike = 1
        while place and alike < len(children) and children[alike][0] == name and _built_alike(child, children[alike][2]):
            alike += 1
        called = f"{name} {place} to {children[alike - 1][1]}, each" if alike > 1 else f"{name} {place}".rstrip()
        _draw(branch, called, child, seen)
        for _, _, other in children[1:alike]:
            seen.update(map(id, other.parameters()))
        children = children[alike:]


def _attention(branch: Tree, attention: MultiHeadAttention, seen: set[int]) -> None:
    for letter, projection in zip("QKV", (attention.query_projection, attention.key_projection, attention.value_projection), strict=True):
        _draw(branch, f"W_{letter}", projection, seen)
    if attention.position is not None:
        _draw(branch, "position", attention.position, seen, _first_line(attention.position))
    _draw(branch, "score", attention.score, seen, equation_of(attention.score))
    normalizer = attention.normaliser
    branch.add(Text.assemble(("normalizer", "bold"), f"  {type(normalizer).__name__}", (f"   {_first_line(normalizer)}", "italic")))
    if attention.output is not None:
        _draw(branch, "W_O", attention.output, seen)


def _line(name: str, module: nn.Module, seen: set[int], says: str) -> Text:
    line = Text.assemble((name, "bold"), f"  {_what(module)}")
    said = says or equation(module)
    if said:
        line.append(f"   {said}", "italic")
    mine = {id(parameter): parameter.numel() for parameter in module.parameters()}
    count = sum(number for key, number in mine.items() if key not in seen)
    if count:
        line.append(f"   {count:,}", "cyan")
    elif mine:
        line.append("   shared", "dim")
    return line


def _what(module: nn.Module) -> str:
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


def _worth_drawing(module: nn.Module) -> bool:
    return any(True for _ in module.parameters()) or bool(equation(module))


def _built_alike(one: nn.Module, other: nn.Module) -> bool:
    shapes = [[(name, tuple(parameter.shape)) for name, parameter in module.named_parameters()] for module in (one, other)]
    return shapes[0] == shapes[1] and repr(one) == repr(other)


def _first_line(part: object) -> str:
    return inspect.cleandoc(type(part).__doc__ or "").split("\n")[0]
