"""Modules that look like attention and told nothing, with what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Any

from torch import nn

LIKE_ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
# what stands beside attention and is called after it
PARTS = re.compile(r"dropout|norm|mask|output|projection|pool|bias|embedding|cache|rotary", re.IGNORECASE)


def unseen(paths: Mapping[nn.Module, str], seen: Set[str]) -> dict[str, str]:
    """The innermost modules that look like attention and that no map belongs to, by path, each with what to do.

    Args:
        paths: every module and its path.
        seen: the paths that there are maps of.
    """
    alike = {path: module for module, path in paths.items() if looks_like_attention(module)}
    outer = {above for path in (*alike, *seen) for above in _above(path)}
    found = {path: module for path, module in alike.items() if path not in outer and path not in seen}
    compiled = {path for module, path in paths.items() if module._compiled_call_impl is not None or hasattr(module, "_orig_mod")}
    missing = {path: module for path, module in found.items() if not seen & _above(path)}
    return {path: advice(module, compiled=bool(compiled & {path, *_above(path)})) for path, module in missing.items()}


def _above(path: str) -> set[str]:
    """The paths of all modules that hold the one of this path."""
    return {"", *(path.rsplit(".", cut)[0] for cut in range(1, path.count(".") + 1))} - {path}


def looks_like_attention(module: nn.Module) -> bool:
    """Whether a module is called attention, or computes FlexAttention."""
    name = type(module).__name__
    return (LIKE_ATTENTION.search(name) is not None and PARTS.search(name) is None) or "flex_attention" in _names(module)


def advice(module: nn.Module, *, compiled: bool = False) -> str:
    """Why a module may have told nothing, and what to do."""
    asked = getattr(getattr(module, "config", None), "_attn_implementation", None)
    if asked == "flex_attention" or "flex_attention" in _names(module):
        how = 'model.set_attn_implementation("sdpa")' if asked else "F.scaled_dot_product_attention or attent.attend in its place"
        return f"FlexAttention keeps queries and keys inside its kernel: use {how}"
    if compiled:
        return 'it is compiled: run it within torch.compiler.set_stance("force_eager")'
    if asked not in (None, "sdpa"):
        return f'it runs Hugging Face\'s {asked!r} attention: model.set_attn_implementation("sdpa") makes it visible'
    return "it was not called, or computes its weights by itself: F.scaled_dot_product_attention or attent.attend would be seen"


def _names(module: Any) -> tuple[str, ...]:
    """The names that the module's forward uses."""
    code = getattr(type(module).forward, "__code__", None)
    return () if code is None else code.co_names
