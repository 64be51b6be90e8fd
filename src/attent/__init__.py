"""Attention you can swap, see and train.

Public names are imported on first use, which keeps `import attent` fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attent import attention, documents, errors, models, views
    from attent.attention.attend import attend, explain
    from attent.attention.cache import KeyValueCache
    from attent.attention.capture.attribution import LogitAttribution
    from attent.attention.capture.effects import PatchEffects
    from attent.attention.capture.intervene import head_means, intervene
    from attent.attention.capture.patch import logit_difference, patch
    from attent.attention.capture.path_patch import patch_paths
    from attent.attention.capture.watch import watch
    from attent.attention.maps.attention_map import AttentionMap
    from attent.attention.multihead import MultiHeadAttention
    from attent.explorer.server import explore
    from attent.integrations.block_mask import create_block_mask
    from attent.integrations.flex_attention import flex_attention
    from attent.nonparametric.estimator import AttentionRegressor
    from attent.nonparametric.lookup import lookup
    from attent.tasks.loading import load
    from attent.views.pages.page import load_ipython_extension
    from attent.views.walk import walk

    __version__: str

__all__ = [
    "AttentionMap",
    "AttentionRegressor",
    "KeyValueCache",
    "LogitAttribution",
    "MultiHeadAttention",
    "PatchEffects",
    "__version__",
    "attend",
    "attention",
    "create_block_mask",
    "documents",
    "errors",
    "explain",
    "explore",
    "flex_attention",
    "head_means",
    "intervene",
    "load",
    "load_ipython_extension",
    "logit_difference",
    "lookup",
    "models",
    "patch",
    "patch_paths",
    "views",
    "walk",
    "watch",
]

_MODULES = ("attention", "documents", "errors", "models", "views")
_HOMES = {
    "AttentionMap": "attent.attention.maps.attention_map",
    "AttentionRegressor": "attent.nonparametric.estimator",
    "KeyValueCache": "attent.attention.cache",
    "LogitAttribution": "attent.attention.capture.attribution",
    "MultiHeadAttention": "attent.attention.multihead",
    "PatchEffects": "attent.attention.capture.effects",
    "attend": "attent.attention.attend",
    "create_block_mask": "attent.integrations.block_mask",
    "explain": "attent.attention.attend",
    "explore": "attent.explorer.server",
    "flex_attention": "attent.integrations.flex_attention",
    "head_means": "attent.attention.capture.intervene",
    "intervene": "attent.attention.capture.intervene",
    "load": "attent.tasks.loading",
    "load_ipython_extension": "attent.views.pages.page",
    "logit_difference": "attent.attention.capture.patch",
    "lookup": "attent.nonparametric.lookup",
    "patch": "attent.attention.capture.patch",
    "patch_paths": "attent.attention.capture.path_patch",
    "walk": "attent.views.walk",
    "watch": "attent.attention.capture.watch",
}

if not TYPE_CHECKING:  # otherwise a type checker would accept any attribute of this module

    def __getattr__(name: str) -> object:
        try:
            if name in _HOMES:
                value = getattr(importlib.import_module(_HOMES[name]), name)
            elif name in _MODULES:
                value = importlib.import_module(f"attent.{name}")
            elif name == "__version__":
                value = importlib.import_module("importlib.metadata").version("attent")
            else:
                raise AttributeError(f"module 'attent' has no attribute {name!r}")
        except ModuleNotFoundError:
            importlib.import_module("attent.requirements").check_torch()
            raise
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | {*__all__})
