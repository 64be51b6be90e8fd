"""The digest of the C++ sources, used to check that a compiled library was built from exactly these sources.

The build runs this file on its own, so it imports nothing from attent.
"""

import hashlib
from pathlib import Path

FOLDER = Path(__file__).with_name("csrc")


def digest(folder: Path = FOLDER) -> str:
    """Return the digest of the names and contents of all C++ files in a folder: 64 hexadecimal digits."""
    whole = hashlib.sha256()
    for file in sorted([*folder.glob("*.cpp"), *folder.glob("*.h")]):
        content = file.read_bytes()
        whole.update(f"{file.name} {len(content)}\n".encode() + content)
    return whole.hexdigest()
