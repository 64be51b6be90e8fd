"""Views of attention, built only from maps and labels: terminal, pictures, pages, walks."""

from attent.views.pages.page import page

__all__ = ["page"]
