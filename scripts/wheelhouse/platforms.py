"""The platforms that have a wheel with compiled code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Platform:
    """A platform: the compiler's name of it, the wheel's tag, and the library's file name.

    A library without a Python version in its name is found by every Python.
    """

    name: str
    target: str
    tag: str
    library: str = "_compiled.so"
    # Oldest system: the version of glibc, or of macOS.
    oldest: tuple[int, int] = (0, 0)


PLATFORMS = {
    platform.name: platform
    for platform in (
        Platform("linux-x86_64", "x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64.manylinux2014_x86_64", oldest=(2, 17)),
        Platform(
            "linux-aarch64", "aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64.manylinux2014_aarch64", oldest=(2, 17)
        ),
        Platform("macos-arm64", "aarch64-macos.11.0", "macosx_11_0_arm64", oldest=(11, 0)),
        Platform("macos-x86_64", "x86_64-macos.10.15", "macosx_10_15_x86_64", oldest=(10, 15)),
        Platform("windows-x86_64", "x86_64-windows-gnu", "win_amd64", "_compiled.pyd"),
    )
}
