"""Archives and wheels that have the same bytes whenever they are made."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path

import pytest
from wheelhouse import building
from wheelhouse.archives import read_wheel, rewrite_sdist, write_wheel
from wheelhouse.bill import bill_of_materials
from wheelhouse.platforms import PLATFORMS

INFO = "attent-0.1.0.dist-info"
CONTENTS = {
    "attent/__init__.py": b"",
    f"{INFO}/METADATA": b"Metadata-Version: 2.4\nName: attent\nVersion: 0.1.0\nLicense-File: LICENSE\n\nAttention.\n",
    f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: another\nTag: cp311-cp311-linux_x86_64\n",
    f"{INFO}/licenses/LICENSE": b"Apache\n",
    f"{INFO}/RECORD": b"old,,\n",
}
SECONDS = 1_700_000_000


def test_a_wheel_has_the_same_bytes_whatever_the_order_and_the_day(tmp_path: Path) -> None:
    write_wheel(tmp_path / "a.whl", CONTENTS, SECONDS)
    write_wheel(tmp_path / "b.whl", dict(reversed(CONTENTS.items())), SECONDS)
    assert (tmp_path / "a.whl").read_bytes() == (tmp_path / "b.whl").read_bytes()
    assert read_wheel(tmp_path / "a.whl") == CONTENTS
    with zipfile.ZipFile(tmp_path / "a.whl") as archive:
        assert [name for name in archive.namelist() if ".dist-info" not in name] == archive.namelist()[:1]
        assert {member.date_time for member in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}


def test_a_source_distribution_has_the_same_bytes_whenever_it_is_packed(tmp_path: Path) -> None:
    files = {"attent-0.1.0/b.py": (b"1", 0o644), "attent-0.1.0/a.sh": (b"2", 0o711)}
    for number, order in enumerate((sorted(files), sorted(files, reverse=True))):
        with tarfile.open(tmp_path / f"{number}.tar.gz", "w:gz") as archive:
            for name in order:
                content, mode = files[name]
                member = tarfile.TarInfo(name)
                member.size, member.mtime, member.mode, member.uname = (
                    len(content),
                    1000 + number,
                    mode,
                    f"user{number}",
                )
                archive.addfile(member, io.BytesIO(content))
        os.utime(tmp_path / f"{number}.tar.gz", (number, number))
        rewrite_sdist(tmp_path / f"{number}.tar.gz", tmp_path / f"new{number}.tar.gz", SECONDS)
    assert (tmp_path / "new0.tar.gz").read_bytes() == (tmp_path / "new1.tar.gz").read_bytes()
    with tarfile.open(tmp_path / "new1.tar.gz") as archive:
        found = {member.name: (member.mtime, member.mode, member.uname) for member in archive}
        assert found == {"attent-0.1.0/a.sh": (SECONDS, 0o755, ""), "attent-0.1.0/b.py": (SECONDS, 0o644, "")}
        assert {name: archive.extractfile(name).read() for name in found} == {name: files[name][0] for name in found}


@pytest.mark.parametrize("name", [None, "linux-aarch64", "windows-x86_64"])
def test_a_wheel_lists_its_files_its_library_and_what_is_linked_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    monkeypatch.setattr(building, "licences", lambda platform: {"libc++.txt": b"LLVM\n"} if platform else {})
    monkeypatch.setattr("wheelhouse.bill.version", lambda _: "1.0")
    platform = PLATFORMS[name] if name else None
    building._write(tmp_path, CONTENTS, platform, b"\x7fELF" if platform else b"", SECONDS)
    (file,) = tmp_path.iterdir()
    assert file.name == f"attent-0.1.0-py3-none-{platform.tag if platform else 'any'}.whl"
    contents = read_wheel(file)
    rows = list(csv.reader(contents[f"{INFO}/RECORD"].decode().splitlines()))
    assert {row[0] for row in rows} == set(contents)
    for path, digest, size in rows[:-1]:
        expected = base64.urlsafe_b64encode(hashlib.sha256(contents[path]).digest()).decode().rstrip("=")
        assert (digest, int(size)) == (f"sha256={expected}", len(contents[path]))
    bill = json.loads(contents[f"{INFO}/sboms/attent.cdx.json"])
    hashes = [component["hashes"][0]["content"] for component in bill["components"] if component["type"] == "file"]
    libraries = [contents[path] for path in contents if path.endswith((".so", ".pyd"))]
    assert hashes == [hashlib.sha256(library).hexdigest() for library in libraries]
    assert len(libraries) == (platform is not None)
    names = {component["name"] for component in bill["components"]}
    assert ("mingw-w64" in names) == (name == "windows-x86_64") and ("libc++" in names) == (name is not None)
    tags = f"Tag: py3-none-{platform.tag.split('.')[0] if platform else 'any'}\n".encode()
    assert tags in contents[f"{INFO}/WHEEL"] and b"cp311" not in contents[f"{INFO}/WHEEL"]
    assert (b"License-File: linked/libc++.txt\n" in contents[f"{INFO}/METADATA"]) == (platform is not None)


def test_the_bill_is_the_same_for_the_same_library_alone() -> None:
    bills = [bill_of_materials("0.1.0", None, digest, SECONDS) for digest in ("", "", "00")]
    assert bills[0] == bills[1] != bills[2]


def test_the_time_is_the_commits_unless_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "12")
    assert building.commit_time(Path(__file__).parent) == 12
