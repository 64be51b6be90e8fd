"""The compiled library, and programs that call it, for any platform, by the compiler of the package ziglang."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from wheelhouse.platforms import Platform


def sources_digest(checkout: Path) -> str:
    """Return the digest of the sources, which the library carries."""
    return runpy.run_path(str(checkout / "src/attent/ops/sources.py"))["digest"]()


def compile_library(platform: Platform, checkout: Path) -> bytes:
    """Compile the sources of a checkout, or of an unpacked source distribution, and return the stripped library.

    Args:
        platform: for which platform.
        checkout: the folder with pyproject.toml, which names the sources and the compiler's arguments.
    """
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    (extension,) = project["tool"]["setuptools"]["ext-modules"]
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, platform.library)
        # GCC, which compiles checkouts, may fuse a product with a sum of another expression
        arguments = [*extension["extra-compile-args"], "-ffp-contract=fast", "-g0", "-shared", "-s"]
        if "linux" in platform.name:
            # not the operators of the C++ library that is linked in
            names = Path(folder, "exported")
            names.write_text("{ global: attent_*; local: *; };\n", encoding="utf-8")
            arguments.append(f"-Wl,--version-script={names}")
        elif "macos" in platform.name:
            # not the path of the temporary folder, which would be stored
            arguments.append(f"-Wl,-install_name,@rpath/{platform.library}")
        compile_for(
            platform,
            [*arguments, f"-DATTENT_SOURCES={sources_digest(checkout)}", *extension["sources"]],
            built,
            checkout,
        )
        return built.read_bytes()


def compile_for(platform: Platform, arguments: list[str], file: Path, folder: Path) -> None:
    """Run the compiler in a folder."""
    command = [sys.executable, "-m", "ziglang", "c++", "-target", platform.target, *arguments, "-o", str(file)]
    with tempfile.TemporaryDirectory() as cache:
        # only the platform's own libraries are taken from an earlier compilation
        subprocess.run(command, cwd=folder, env=os.environ | {"ZIG_LOCAL_CACHE_DIR": cache}, check=True)
