"""Build step that compiles the library with setuptools.

`pyproject.toml` refers to this class; nothing imports it at run time.
"""

import runpy
from pathlib import Path

from setuptools import Extension
from setuptools.command.build_ext import build_ext


class BuildExtension(build_ext):
    """Embeds the digest of the sources in the library, and recompiles a library with a different digest."""

    def build_extension(self, ext: Extension) -> None:
        # attent cannot be imported during a build
        digest = runpy.run_path(str(Path(__file__).with_name("sources.py")))["digest"]()
        file = Path(self.get_ext_fullpath(ext.name))
        self.force = not (file.is_file() and digest.encode() in file.read_bytes())
        ext.define_macros.append(("ATTENT_SOURCES", digest))
        super().build_extension(ext)
