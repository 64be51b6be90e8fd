"""The bill of materials of a wheel, and the licences of what its library contains (PEP 770, CycloneDX 1.6)."""

from __future__ import annotations

import json
import time
import uuid
from importlib.metadata import version
from pathlib import Path

from wheelhouse.platforms import Platform

# Linked into a library: the name, the licence's identifier, the file with its text.
LINKED = {
    "libc++": ("Apache-2.0 WITH LLVM-exception", "lib/libcxx/LICENSE.TXT"),
    "libc++abi": ("Apache-2.0 WITH LLVM-exception", "lib/libcxxabi/LICENSE.TXT"),
    "libunwind": ("Apache-2.0 WITH LLVM-exception", "lib/libunwind/LICENSE.TXT"),
    "zig compiler-rt": ("MIT", "LICENSE"),
}
MINGW = {"mingw-w64": ("ZPL-2.1", "lib/libc/mingw/COPYING")}


def linked(platform: Platform | None) -> dict[str, tuple[str, str]]:
    """Return what is linked into the library of a platform; nothing for the wheel without one."""
    if platform is None:
        return {}
    if "macos" in platform.name:
        # the system unwinds
        return {name: found for name, found in LINKED.items() if name != "libunwind"}
    return LINKED | (MINGW if "windows" in platform.name else {})


def licences(platform: Platform | None) -> dict[str, bytes]:
    """Return the texts of the licences by file name."""
    if platform is None:
        return {}
    # installed for scripts/wheels alone
    import ziglang

    folder = Path(ziglang.__file__).parent
    return {
        f"{name.replace(' ', '-')}.txt": (folder / file).read_bytes() for name, (_, file) in linked(platform).items()
    }


def bill_of_materials(release: str, platform: Platform | None, digest: str, seconds: int) -> bytes:
    """Return the bill in JSON.

    Args:
        release: attent's version.
        platform: the wheel's, or None for the one without a library.
        digest: SHA-256 of the library; empty without one.
        seconds: the time that it states, since 1970.
    """
    package = f"pkg:pypi/attent@{release}"
    components = [
        {
            "type": "library",
            "bom-ref": f"ziglang/{name}",
            "name": name,
            "version": f"of ziglang {version('ziglang')}",
            "licenses": [{"expression": licence}],
            "purl": f"pkg:pypi/ziglang@{version('ziglang')}#{Path(file).parent.as_posix()}",
        }
        for name, (licence, file) in linked(platform).items()
    ]
    if platform is not None:
        hashes = [{"alg": "SHA-256", "content": digest}]
        library = {"type": "file", "bom-ref": "library", "name": f"attent/ops/{platform.library}", "hashes": hashes}
        components.insert(0, library | {"licenses": [{"license": {"id": "Apache-2.0"}}]})
    name = platform.name if platform else "pure"
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{package} {name} {digest}')}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)),
            "component": {
                "type": "library",
                "bom-ref": package,
                "name": "attent",
                "version": release,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": package,
            },
        },
        "components": components,
        "dependencies": [
            {"ref": package, "dependsOn": ["library"] if platform else []},
            *([{"ref": "library", "dependsOn": [f"ziglang/{name}" for name in linked(platform)]}] if platform else []),
        ],
    }
    return json.dumps(bill, indent=2).encode() + b"\n"
