"""Views: attention for the eye, from maps and labels alone.

`page` is imported when it is first used, so that importing a view does not import all of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attent.views.pages.page import page

__all__ = ["page"]

if not TYPE_CHECKING:  # a type checker that saw this would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name != "page":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = page = importlib.import_module("attent.views.pages.page").page
        return page
