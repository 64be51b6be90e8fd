"""The former name of `attent.views.build_scene`."""

from attent.views.build_scene import build_scene as arranged

__all__ = ["arranged"]
