"""Archives with the same bytes whenever they are written: members in order, one time, one owner."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path


def read_wheel(file: Path) -> dict[str, bytes]:
    """Return the contents of a wheel's files by name."""
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def write_wheel(file: Path, contents: Mapping[str, bytes], seconds: int) -> None:
    """Write a wheel, its metadata last.

    Args:
        file: the wheel.
        contents: of its files, by name.
        seconds: the time of all files, since 1970.
    """
    moment = time.gmtime(seconds)[:6]
    with zipfile.ZipFile(file, "w") as archive:
        for name in sorted(contents, key=lambda name: (".dist-info/" in name, name)):
            member = zipfile.ZipInfo(name, moment)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.create_system = 3
            member.external_attr = (0o100755 if name.endswith((".so", ".pyd")) else 0o100644) << 16
            archive.writestr(member, contents[name], compresslevel=9)


def recorded_digest(content: bytes) -> str:
    """Return the digest of a file as RECORD lists it."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def rewrite_sdist(file: Path, target: Path, seconds: int) -> None:
    """Write a source distribution again, with one time and owner for all its files."""
    packed = io.BytesIO()
    with tarfile.open(file) as old, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = seconds, 0, 0, "", ""
            member.pax_headers = {}
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    target.write_bytes(gzip.compress(packed.getvalue(), compresslevel=9, mtime=seconds))
