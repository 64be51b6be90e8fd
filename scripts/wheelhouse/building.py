"""The source distribution, and the wheels made from it."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from wheelhouse.archives import read_wheel, recorded_digest, rewrite_sdist, write_wheel
from wheelhouse.bill import bill_of_materials, licences
from wheelhouse.compiling import compile_library
from wheelhouse.platforms import Platform

# What setuptools calls when it compiles: nothing, so that the wheel has no library.
NO_COMPILER = dict.fromkeys(("CC", "CXX", "LDSHARED", "LDCXXSHARED"), "false")


def commit_time(checkout: Path) -> int:
    """Return SOURCE_DATE_EPOCH, or the time of the last commit, in seconds since 1970."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    command = ["git", "log", "-1", "--format=%ct"]
    return int(subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout)


def build_all(checkout: Path, platforms: Iterable[Platform], dist: Path) -> None:
    """Build the source distribution and from it the wheels: the pure one, and one for each platform."""
    seconds = commit_time(checkout)
    dist.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        built = _built("sdist", checkout, work / "sdist")
        sdist = dist / built.name
        rewrite_sdist(built, sdist, seconds)
        with tarfile.open(sdist) as archive:
            archive.extractall(work / "unpacked", filter="data")
        (source,) = (work / "unpacked").iterdir()
        pure = read_wheel(_built("wheel", source, work / "pure"))
        _write(dist, pure, None, b"", seconds)
        for platform in platforms:
            print(f"compiling for {platform.name}", file=sys.stderr)
            _write(dist, pure, platform, compile_library(platform, source), seconds)


def _built(kind: str, source: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", str(folder), str(source)]
    environment = os.environ | NO_COMPILER
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    (file,) = folder.iterdir()
    return file


def _write(dist: Path, pure: dict[str, bytes], platform: Platform | None, library: bytes, seconds: int) -> None:
    """Write one wheel: the files of the pure one, the library, its licences, the bill, and the list of all."""
    info = next(name.split("/")[0] for name in pure if ".dist-info/" in name)
    release = info.removeprefix("attent-").removesuffix(".dist-info")
    tag = f"py3-none-{platform.tag if platform else 'any'}"
    contents = {name: content for name, content in pure.items() if name != f"{info}/RECORD"}
    contents[f"{info}/WHEEL"] = _tags(tag, is_pure=platform is None)
    texts = licences(platform)
    contents |= {f"{info}/licenses/linked/{name}": text for name, text in texts.items()}
    metadata = contents[f"{info}/METADATA"].decode()
    lines = "".join(f"License-File: linked/{name}\n" for name in texts)
    contents[f"{info}/METADATA"] = re.sub(r"(?m)^(License-File: .*\n)", rf"\1{lines}", metadata, count=1).encode()
    if platform is not None:
        contents[f"attent/ops/{platform.library}"] = library
    digest = hashlib.sha256(library).hexdigest() if library else ""
    contents[f"{info}/sboms/attent.cdx.json"] = bill_of_materials(release, platform, digest, seconds)
    contents[f"{info}/RECORD"] = _record(contents, f"{info}/RECORD")
    write_wheel(dist / f"attent-{release}-{tag}.whl", contents, seconds)


def _tags(tag: str, *, is_pure: bool) -> bytes:
    interpreter, abi, systems = tag.split("-")
    tags = "".join(f"Tag: {interpreter}-{abi}-{system}\n" for system in systems.split("."))
    head = f"Wheel-Version: 1.0\nGenerator: attent\nRoot-Is-Purelib: {str(is_pure).lower()}\n"
    return (head + tags + "\n").encode()


def _record(contents: dict[str, bytes], name: str) -> bytes:
    lines = [f"{file},{recorded_digest(content)},{len(content)}\n" for file, content in sorted(contents.items())]
    return "".join([*lines, f"{name},,\n"]).encode()
