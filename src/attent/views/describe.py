"""A model as a tree of its parts: their equations, shapes and numbers of parameters."""

from __future__ import annotations

import inspect
import re

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree
from torch import nn

from attent.attention.multihead import MultiHeadAttention
from attent.layers.residual import Residual
from attent.views.step import equation_of


def describe(model: nn.Module, title: str = "") -> RenderableType:
    """Build the tree, for rich to print.

    Equal layers in a row are drawn once, with their number. A shared parameter is drawn and drawn_ids at its first
    occurrence.

    Args:
        model: any module.
        title: the name of the model; its class unless given.
    """
    tree = Tree(Text(title or type(model).__name__, "bold"))
    _add_children(tree, model, set())
    parameters = list(model.parameters())
    size = sum(parameter.numel() * parameter.element_size() for parameter in parameters) / 2**20
    return Group(
        tree, Text(f"{sum(parameter.numel() for parameter in parameters):,} parameters in all, {size:,.1f} MiB")
    )


def equation(part: object) -> str:
    """Return the equation in the docstring of a part's class, empty where there is none.

    Of equations named post and pre, return the part's own.
    """
    if type(part).__module__.startswith("torch."):
        return ""
    text = inspect.cleandoc(type(part).__doc__ or "").split("\nArgs:")[0]
    # An equation goes on in the next line, indented, after a semicolon.
    text = re.sub(r"; *\n {8,}(?=\S)", ";  ", text)
    lines = [re.sub(r" {2,}", "  ", line) for line in re.findall(r"^ +(\S.* = .*)$", text, re.MULTILINE)]
    norm = (
        "pre: "
        if isinstance(part, nn.Module) and any(isinstance(child, Residual) and child.pre for child in part.children())
        else "post: "
    )
    of_norm = [line.removeprefix(norm) for line in lines if line.startswith(norm)]
    return next(iter([*of_norm, *lines]), "")


def _add(tree: Tree, name: str, module: nn.Module, drawn_ids: set[int], note: str = "") -> None:
    """Add a module; `drawn_ids` has the ids of the parameters that were drawn before."""
    branch = tree.add(_line(name, module, drawn_ids, note))
    if isinstance(module, MultiHeadAttention):
        _add_attention(branch, module, drawn_ids)
    else:
        _add_children(branch, module, drawn_ids)
    drawn_ids.update(map(id, module.parameters()))


def _add_children(branch: Tree, module: nn.Module, drawn_ids: set[int]) -> None:
    if not isinstance(module, nn.Linear | nn.LayerNorm):
        for name, parameter in module.named_parameters(recurse=False):
            shape = " × ".join(map(str, parameter.shape))
            branch.add(
                Text.assemble(
                    (name, "bold"), f"  {shape}", ("" if id(parameter) not in drawn_ids else "   shared", "dim")
                )
            )
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


def _add_attention(branch: Tree, attention: MultiHeadAttention, drawn_ids: set[int]) -> None:
    for letter, projection in zip(
        "QKV", (attention.query_projection, attention.key_projection, attention.value_projection), strict=True
    ):
        _add(branch, f"W_{letter}", projection, drawn_ids)
    if attention.position is not None:
        _add(branch, "position", attention.position, drawn_ids, _first_line(attention.position))
    _add(branch, "score", attention.score, drawn_ids, equation_of(attention.score))
    normalizer = attention.normalizer
    branch.add(
        Text.assemble(
            ("normalizer", "bold"), f"  {type(normalizer).__name__}", (f"   {_first_line(normalizer)}", "italic")
        )
    )
    if attention.output is not None:
        _add(branch, "W_O", attention.output, drawn_ids)


def _line(name: str, module: nn.Module, drawn_ids: set[int], note: str) -> Text:
    line = Text.assemble((name, "bold"), f"  {_summary(module)}")
    if note := note or equation(module):
        line.append(f"   {note}", "italic")
    sizes = {id(parameter): parameter.numel() for parameter in module.parameters()}
    if count := sum(size for key, size in sizes.items() if key not in drawn_ids):
        line.append(f"   {count:,}", "cyan")
    elif sizes:
        line.append("   shared", "dim")
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


def _first_line(part: object) -> str:
    return inspect.cleandoc(type(part).__doc__ or "").split("\n")[0]
