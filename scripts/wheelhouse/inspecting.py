"""What can be told about wheels and their libraries without running them."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import subprocess
import sys
from email.parser import BytesParser
from pathlib import Path

import lief

from wheelhouse.archives import read_wheel, recorded_digest
from wheelhouse.compiling import sources_digest
from wheelhouse.platforms import PLATFORMS, Platform

# It prints of a part that a library may lack.
lief.logging.disable()

LARGEST = 5_000_000
# The system's own libraries that a library may need, by platform.
SYSTEM = {
    "linux": r"lib(c|m|pthread|dl|rt)\.so\.\d|ld-linux-(x86-64|aarch64)\.so\.\d",
    "macos": r"/usr/lib/libSystem\.B\.dylib",
    "windows": r"KERNEL32\.dll|ntdll\.dll|api-ms-win-crt-[a-z]+-l1-1-0\.dll",
}
# The instruction tdpbf16ps tmm0, tmm4, tmm6 of the matrix tiles (AMX), which a compiler may lack without an error.
TILE_PRODUCT = bytes.fromhex("c4e24a5cc4")
FORMATS = {
    "linux-x86_64": (lief.ELF, "X86_64"),
    "linux-aarch64": (lief.ELF, "AARCH64"),
    "macos-arm64": (lief.MachO, "ARM64"),
    "macos-x86_64": (lief.MachO, "X86_64"),
    "windows-x86_64": (lief.PE, "AMD64"),
}


def inspect_all(checkout: Path, dist: Path) -> list[str]:
    """Return what is wrong with the files in a folder: nothing where all is right. Prints a line for each file."""
    files = sorted(dist.iterdir())
    done = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True)
    problems = [done.stdout + done.stderr] if done.returncode else []
    for file in files:
        found = inspect_wheel(checkout, file) if file.suffix == ".whl" else []
        problems += [f"{file.name}: {problem}" for problem in found]
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        print(f"{file.stat().st_size:>9,} bytes  {digest[:16]}…  {'WRONG' if found else 'right'}  {file.name}")
    return problems


def platform_of(file: Path) -> Platform | None:
    """Return the platform of a wheel; None for the pure one."""
    return next((platform for platform in PLATFORMS.values() if file.stem.endswith(f"-{platform.tag}")), None)


def inspect_wheel(checkout: Path, file: Path) -> list[str]:
    """Return what is wrong with a wheel."""
    platform = platform_of(file)
    contents = read_wheel(file)
    problems = [] if file.stat().st_size <= LARGEST else [f"larger than {LARGEST:,} bytes"]
    (record,) = (name for name in contents if name.endswith(".dist-info/RECORD"))
    info = record.split("/")[0]
    recorded = {row[0]: row[1] for row in csv.reader(contents[record].decode().splitlines())}
    digests = {name: recorded_digest(content) for name, content in contents.items() if name != record}
    if recorded != digests | {record: ""}:
        problems.append("RECORD does not list the files")
    for name in BytesParser().parsebytes(contents[f"{info}/METADATA"]).get_all("License-File"):
        if f"{info}/licenses/{name}" not in contents:
            problems.append(f"the licence {name} is missing")
    bill = json.loads(contents[f"{info}/sboms/attent.cdx.json"])
    libraries = {name: content for name, content in contents.items() if name.endswith((".so", ".pyd", ".dylib"))}
    hashes = {
        component["name"]: component["hashes"][0]["content"]
        for component in bill["components"]
        if component["type"] == "file"
    }
    if hashes != {name: hashlib.sha256(content).hexdigest() for name, content in libraries.items()}:
        problems.append("the bill of materials lists other libraries")
    if list(libraries) != ([f"attent/ops/{platform.library}"] if platform else []):
        problems.append(f"holds the libraries {list(libraries)}")
    elif platform is not None:
        problems += inspect_library(checkout, platform, *libraries.values())
        if "linux" in platform.name:
            problems += _audit(file, platform)
    return problems


def entry_points(checkout: Path) -> set[str]:
    """Return the names of the functions that the library exports, read from its sources."""
    files = (checkout / "src/attent/ops/csrc").glob("*.cpp")
    return {
        name for file in files for name in re.findall(r"EXPORTED [\w\s*]+?\b(attent_\w+)\(", file.read_text("utf-8"))
    }


def inspect_library(checkout: Path, platform: Platform, content: bytes) -> list[str]:
    """Return what is wrong with a library: its machine, its symbols, what it needs, what it was compiled from."""
    module, machine = FORMATS[platform.name]
    parsed = module.parse(list(content))
    binary = parsed.at(0) if module is lief.MachO else parsed
    system = platform.name.split("-")[0]
    problems = []
    found, needed, exported, imported = _read(system, binary)
    if found != machine:
        problems.append(f"compiled for {found}")
    if other := [name for name in needed if not re.fullmatch(SYSTEM[system], name)]:
        problems.append(f"needs {', '.join(other)}")
    if exported != (entries := entry_points(checkout)):
        problems.append(f"exports {sorted(exported - entries)[:5]}, lacks {sorted(entries - exported)[:5]}")
    if python := [name for name in imported if re.match(r"_?_?Py", name)]:
        problems.append(f"calls Python's {python[:5]}")
    if sources_digest(checkout).encode() not in content:
        problems.append("compiled from other sources")
    if platform.name == "linux-x86_64" and TILE_PRODUCT not in content:
        problems.append("multiplies nothing by matrix tiles (AMX)")
    return problems + _oldest_system(system, platform, binary)


def _read(system: str, binary: lief.Binary) -> tuple[str, list[str], set[str], set[str]]:
    """Return a library's machine, the libraries it needs, and the functions it exports and imports."""
    if system == "linux":
        exported = {symbol.name for symbol in binary.exported_symbols}
        return binary.header.machine_type.name, list(binary.libraries), exported, _names(binary.imported_symbols)
    if system == "macos":
        names = {symbol.name.removeprefix("_") for symbol in binary.exported_symbols}
        # the operators new and delete of the C++ library, which this linker cannot hide, and dyld binds to the system's
        exported = {name for name in names if not re.match(r"_Z(n[aw]|d[al])|_mh_dylib_header|__dso_handle", name)}
        # the first is the library's own name
        needed = [library.name for library in binary.libraries if not library.name.startswith("@rpath")]
        return binary.header.cpu_type.name, needed, exported, _names(binary.imported_symbols)
    exported = {entry.name for entry in binary.get_export().entries}
    imported = {entry.name for library in binary.imports for entry in library.entries}
    return binary.header.machine.name, [library.name for library in binary.imports], exported, imported


def _names(symbols: list[lief.Symbol]) -> set[str]:
    return {str(symbol.name) for symbol in symbols}


def _oldest_system(system: str, platform: Platform, binary: lief.Binary) -> list[str]:
    """Return what is wrong with the oldest system that a library asks for, and with what was to be stripped."""
    problems = []
    if system == "linux":
        versions = {
            tuple(int(number) for number in version.name.removeprefix("GLIBC_").split(".")[:2])
            for requirement in binary.symbols_version_requirement
            for version in requirement.get_auxiliary_symbols()
        }
        if max(versions) > platform.oldest:
            problems.append(f"needs glibc {max(versions)}")
        if list(binary.symtab_symbols) or any(section.name.startswith(".debug") for section in binary.sections):
            problems.append("is not stripped")
    elif system == "macos":
        if tuple(binary.build_version.minos[:2]) != platform.oldest:
            problems.append(f"needs macOS {binary.build_version.minos}")
        if platform.name == "macos-arm64" and not binary.has_code_signature:
            problems.append("is not signed, which macOS asks of arm64")
    elif any(section.name.startswith((".debug", "/")) for section in binary.sections) or binary.symbols:
        problems.append("is not stripped")
    return problems


def _audit(file: Path, platform: Platform) -> list[str]:
    """Return what auditwheel objects to."""
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if platform.tag.split(".")[0] in done.stdout or platform.tag.split(".")[1] in done.stdout:
        return []
    return [f"auditwheel: {done.stdout}{done.stderr}"]
