from __future__ import annotations

from pathlib import Path

import pytest
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

from attent.ops.build_extension import BuildExtension
from attent.ops.sources import digest


@pytest.mark.parametrize(("content", "is_compiled_again"), [(None, True), (b"of others", True), (b"...%s...", False)])
def test_it_compiles_what_is_not_of_these_sources(
    content: bytes | None, is_compiled_again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However young the library is.

    A copy from elsewhere, or a checkout of an older version, would pass by its date.
    """
    compiled: list[tuple[bool | None, list[tuple[str, str | None]]]] = []
    monkeypatch.setattr(
        build_ext, "build_extension", lambda self, ext: compiled.append((self.force, ext.define_macros))
    )
    command = BuildExtension(Distribution({"ext_modules": [Extension("library", [])]}))
    command.build_lib = str(tmp_path)
    command.ensure_finalized()
    if content is not None:
        Path(command.get_ext_fullpath("library")).write_bytes(content.replace(b"%s", digest().encode()))
    command.build_extension(command.extensions[0])
    assert compiled == [(is_compiled_again, [("ATTENT_SOURCES", digest())])]
