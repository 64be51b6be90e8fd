"""The libraries in dist/ against plain loops, for the platforms that an emulator runs here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from wheelhouse.archives import read_wheel
from wheelhouse.compiling import compile_for
from wheelhouse.inspecting import entry_points, platform_of
from wheelhouse.platforms import PLATFORMS, Platform

HARNESS = "tests/ops/native"


@dataclass(frozen=True)
class Emulator:
    """A program that runs programs of a platform, and the Debian package that brings it."""

    platform: str
    command: tuple[str, ...]
    package: str
    # SIMD levels to try: those that the emulated processor may have.
    levels: tuple[str, ...] = ("0",)


EMULATORS = (
    Emulator("linux-x86_64", (), "", ("0", "1", "2")),
    Emulator(
        "linux-aarch64", ("qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"), "qemu-user-static libc6-arm64-cross"
    ),
    Emulator("windows-x86_64", ("wine",), "wine wine64", ("0", "1", "2")),
)


def emulate_all(checkout: Path, dist: Path) -> None:
    """Run the harness with the library of each wheel in a folder that can be run here.

    Raises:
        SystemExit: a result is wrong, or an entry point of the library is not called.
    """
    sources = sorted((checkout / HARNESS).glob("*.cpp"))
    names = Counter(name for file in sources for name in re.findall(r"\battent_\w+(?=\()", file.read_text("utf-8")))
    # once declared, then called
    called = {name for name, count in names.items() if count > 1}
    if missing := entry_points(checkout) - called - {"attent_sources"}:
        raise SystemExit(f"{HARNESS} does not call {', '.join(sorted(missing))}")
    wheels = {platform.name: file for file in dist.glob("*.whl") if (platform := platform_of(file))}
    for emulator in EMULATORS:
        if emulator.platform not in wheels:
            print(f"{emulator.platform}: no wheel in {dist}", file=sys.stderr)
        elif emulator.command and shutil.which(emulator.command[0]) is None:
            print(f"{emulator.platform}: no {emulator.command[0]}: apt-get install {emulator.package}", file=sys.stderr)
        else:
            _emulate(checkout, wheels[emulator.platform], emulator)


def _emulate(checkout: Path, wheel: Path, emulator: Emulator) -> None:
    platform = PLATFORMS[emulator.platform]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        library = work / platform.library
        library.write_bytes(read_wheel(wheel)[f"attent/ops/{platform.library}"])
        program = work / ("kernels.exe" if "windows" in platform.name else "kernels")
        compile_for(platform, _arguments(checkout, platform, library), program, checkout)
        environment = os.environ | {"LD_LIBRARY_PATH": folder, "QEMU_SET_ENV": f"LD_LIBRARY_PATH={folder}"}
        # Wine keeps its registry in a folder of its own
        environment |= {"WINEPREFIX": str(work / "wine"), "WINEDEBUG": "-all", "DISPLAY": ""}
        command = [*emulator.command, str(program), *emulator.levels]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    right, wrong = (len(re.findall(rf"(?m)^{word}\b", done.stdout)) for word in ("right", "WRONG"))
    print(f"{platform.name}: {right} comparisons right, {wrong} wrong")
    if done.returncode or wrong or not right:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])


def _arguments(checkout: Path, platform: Platform, library: Path) -> list[str]:
    arguments = ["-std=c++17", "-O1", "-s", *map(str, sorted((checkout / HARNESS).glob("*.cpp")))]
    if "windows" not in platform.name:
        return [*arguments, str(library), "-Wl,-rpath,$ORIGIN", "-pthread"]
    # Windows links with a list of a library's functions, which the compiler makes from their names
    definition = library.with_name("library.def")
    names = "\n".join(f"    {name}" for name in sorted(entry_points(checkout)))
    definition.write_text(f"LIBRARY {library.name}\nEXPORTS\n{names}\n", encoding="utf-8")
    imports = library.with_name("library.lib")
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "dlltool",
        "-m",
        "i386:x86-64",
        "-d",
        str(definition),
        "-l",
        str(imports),
    ]
    subprocess.run(command, check=True)
    return [*arguments, str(imports)]
