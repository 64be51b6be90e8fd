"""Views of attention, from maps and labels alone: terminal, pictures, pages, walks.

`page` is imported on first use, so that importing one view does not import all of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attent.views.pages.page import page

__all__ = ["page"]

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name != "page":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = page = importlib.import_module("attent.views.pages.page").page
        return page
