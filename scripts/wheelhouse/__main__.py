"""The commands of scripts/wheels."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
DIST = Path("dist")


def main(arguments: list[str]) -> None:
    """Run a command; see scripts/wheels."""
    from wheelhouse import building, emulating, inspecting, trying
    from wheelhouse.platforms import PLATFORMS

    command, *names = arguments or ["all"]
    if command not in ("all", "build", "check", "emulate", "try"):
        raise SystemExit("usage: scripts/wheels [build [PLATFORM …] | check | emulate | try [PYTHON …]]")
    if command in ("all", "build"):
        if unknown := set(names) - set(PLATFORMS):
            raise SystemExit(f"no platform {', '.join(sorted(unknown))}; there are {', '.join(PLATFORMS)}")
        shutil.rmtree(DIST, ignore_errors=True)
        building.build_all(CHECKOUT, [PLATFORMS[name] for name in names or PLATFORMS], DIST)
    if command in ("all", "build", "check") and (problems := inspecting.inspect_all(CHECKOUT, DIST)):
        raise SystemExit("\n".join(problems))
    if command in ("all", "emulate"):
        emulating.emulate_all(CHECKOUT, DIST)
    if command in ("all", "try"):
        trying.try_all(CHECKOUT, DIST, names)


main(sys.argv[1:])
