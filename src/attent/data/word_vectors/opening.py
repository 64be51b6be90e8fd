"""The bytes of a file, plain, gzipped or in a zip archive, which its first bytes tell."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile

from attent.data.unpacking import unpacked
from attent.errors import DataError

GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
# Files of an archive that an error names.
NAMED = 5
# What some systems put into an archive beside the files that were meant.
ASIDE = "__MACOSX/"
ENCRYPTED = 1


@contextmanager
def opened(path: Path | str) -> Iterator[IO[bytes]]:
    """The bytes of a file, or of the one file in an archive; of several, one is named behind the archive: `glove.6B.zip/glove.6B.50d.txt`.

    Raises:
        DataError: the file cannot be read, is cut off, or is an archive of several files of which none was named.
    """
    file, member = _divided(Path(path))
    try:
        with file.open("rb") as plain:
            first = plain.read(4)
            plain.seek(0)
            size = os.fstat(plain.fileno()).st_size
            if first.startswith(ZIP):
                with ZipFile(plain) as archive, unpacked(archive.open(_chosen(file, archive, member)), size, path) as stream:
                    yield stream
            elif member:
                raise DataError(f"{path} cannot be read: {file} is no zip archive")
            elif first.startswith(GZIP):
                with unpacked(gzip.open(plain), size, path) as stream:  # pyright: ignore[reportArgumentType]
                    yield stream
            else:
                yield plain
    except (EOFError, zlib.error, gzip.BadGzipFile, BadZipFile) as error:
        raise DataError(f"{path} is cut off or damaged: {error}") from error
    except (OSError, NotImplementedError) as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _divided(path: Path) -> tuple[Path, str]:
    """A path as that of a file, and of a file within it."""
    for file in path.parents if not path.exists() else ():
        if file.is_file():
            return file, path.relative_to(file).as_posix()
    return path, ""


def _chosen(file: Path, archive: ZipFile, member: str) -> str:
    names = [info.filename for info in archive.infolist() if not info.is_dir() and not info.filename.startswith(ASIDE)]
    if member and member not in names:
        raise DataError(f"{file} holds no {member}, but {_listed(names)}")
    if not member and len(names) != 1:
        raise DataError(f"{file} holds {len(names)} files; name one of them, as {file}/{names[0]}" if names else f"{file} is empty")
    chosen = member or names[0]
    if archive.getinfo(chosen).flag_bits & ENCRYPTED:
        raise DataError(f"{file} cannot be read: {chosen} in it is encrypted")
    return chosen


def _listed(names: list[str]) -> str:
    return ", ".join([*names[:NAMED], *["…"] * (len(names) > NAMED)])
