"""Modules that look like attention and told nothing, with what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch
from torch import nn

from attent.attention.capture.dispatch import dispatches, is_attention, names, unsupported


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
    models = [module for module in paths if hasattr(module, "set_attn_implementation")]
    return {path: advice(module, models, compiled=bool(compiled & {path, *_above(path)})) for path, module in missing.items()}


def _above(path: str) -> set[str]:
    """The paths of all modules that hold the one of this path."""
    return {"", *(path.rsplit(".", cut)[0] for cut in range(1, path.count(".") + 1))} - {path}


def looks_like_attention(module: nn.Module) -> bool:
    """Whether a module is called attention, or computes it by a function of PyTorch's."""
    return is_attention(type(module), module.original_name if isinstance(module, torch.jit.ScriptModule) else "")


def advice(module: nn.Module, models: Sequence[Any] = (), *, compiled: bool = False) -> str:
    """Why a module may have told nothing, and what to do.

    Args:
        module: the module.
        models: those of Hugging Face's that are watched, the outermost first.
        compiled: whether the module or one that holds it is under `torch.compile`.
    """
    kind = type(module)
    configs = [getattr(each, "config", None) for each in (module, *models)]
    asked = next((name for config in configs if (name := getattr(config, "_attn_implementation", None))), None)
    if asked == "flex_attention" or "flex_attention" in names(kind):
        how = 'model.set_attn_implementation("sdpa")' if asked else "F.scaled_dot_product_attention or attent.attend in its place"
        return f"FlexAttention keeps queries and keys inside its kernel: use {how}"
    if isinstance(module, torch.jit.ScriptModule):
        return "it is TorchScript, which runs outside Python: watch the model that it was made from"
    if compiled:
        return 'it is compiled: run it within torch.compiler.set_stance("force_eager")'
    can_dispatch = dispatches(kind)
    if asked not in (None, "sdpa", "attent"):
        runs = f"it runs Hugging Face's {asked!r} attention"
        has_sdpa = bool(models) and all(getattr(model, "_supports_sdpa", False) for model in models)
        if can_dispatch and has_sdpa:
            return f'{runs}: model.set_attn_implementation("sdpa") makes it visible'
        if can_dispatch and not unsupported(kind):
            register = "attent.integrations.transformers.register()"
            return f'{runs}: after {register}, model.set_attn_implementation("attent") makes it visible'
        if has_sdpa and "scaled_dot_product_attention" in names(kind):
            return f'{runs}: loading the model with attn_implementation="sdpa" makes it visible'
    if models and (asked not in (None, "sdpa", "attent") or not can_dispatch):
        return "it computes its weights itself: where the model takes output_attentions=True, attent.views.page shows what it returns"
    return "it was not called, or computes its weights by itself: F.scaled_dot_product_attention or attent.attend would be seen"
