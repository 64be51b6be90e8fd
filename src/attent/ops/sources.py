"""The digest of the C++ sources, by which a compiled library is known to be of these and no others.

The build reads this file by itself, so it imports nothing of ours.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

FOLDER = Path(__file__).with_name("csrc")


def digest(folder: Path = FOLDER) -> str:
    """Return the digest of all C++ in a folder, names and contents: 64 hexadecimal digits."""
    whole = hashlib.sha256()
    for file in sorted([*folder.glob("*.cpp"), *folder.glob("*.h")]):
        content = file.read_bytes()
        whole.update(f"{file.name} {len(content)}\n".encode() + content)
    return whole.hexdigest()
