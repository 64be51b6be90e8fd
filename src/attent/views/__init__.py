"""Views of attention, from maps and labels alone: terminal, pictures, pages, walks."""

from __future__ import annotations

from attent.views.pages.page import page

__all__ = ["page"]
