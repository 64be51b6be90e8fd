"""What pip installs for attent beside PyTorch, and for some of its extras: packages and megabytes.

    scripts/wheels build linux-x86_64
    scripts/bench installation dist/attent-0.1.0-*linux*.whl [--extras cli serve]

In a new environment, PyTorch is installed first, as constraints.txt pins it, then the wheel, then each extra. A size is
that of a package's files, with compiled bytecode left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from _report import machine_info, machine_sentence

ROOT = Path(__file__).parents[1]
# pip and setuptools are those of the environment.
LIST = """
import importlib.metadata, json, os
sizes = {}
for package in importlib.metadata.distributions():
    files = [package.locate_file(file) for file in package.files or () if not str(file).endswith(".pyc")]
    sizes[package.name] = sum(os.path.getsize(file) for file in files if os.path.exists(file))
print(json.dumps({name: size for name, size in sizes.items() if name not in ("pip", "setuptools")}))
"""


class Environment:
    """An environment in a folder."""

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        self.python = folder / "bin" / "python"

    def install(self, *packages: str) -> dict[str, int]:
        """Install packages by pip; return the bytes of those that it added."""
        before = self.packages()
        command = [
            self.python,
            "-I",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--constraint",
            ROOT / "constraints.txt",
            *packages,
        ]
        subprocess.run(command, check=True)
        return {name: size for name, size in self.packages().items() if name not in before}

    def packages(self) -> dict[str, int]:
        """Return the bytes of each installed package."""
        done = subprocess.run([self.python, "-I", "-c", LIST], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)


def row(name: str, added: dict[str, int]) -> str:
    """Return a row of the table, with the largest packages first."""
    largest = sorted(added.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{package} {size / 1e6:.1f}" for package, size in largest)
    return f"| `{name}` | {len(added)} | {sum(added.values()) / 1e6:.1f} | {listed} |"


def main() -> None:
    """Install, and print the table."""
    parser = argparse.ArgumentParser(description="What pip installs for attent, in packages and megabytes.")
    parser.add_argument("wheel", type=Path, help="the wheel")
    parser.add_argument("--extras", nargs="*", default=["cli", "plot", "serve"], help="extras, one after another")
    options = parser.parse_args()
    print(f"{machine_sentence(machine_info())} The wheel has {options.wheel.stat().st_size / 1e6:.2f} MB.\n")
    print("| installed | packages added | MB | which, in MB |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        environment = Environment(Path(folder) / "environment")
        print(row("torch", environment.install("torch")), flush=True)
        for name in ("attent", *(f"attent[{extra}]" for extra in options.extras)):
            print(row(name, environment.install(f"{name} @ {options.wheel.resolve().as_uri()}")), flush=True)


if __name__ == "__main__":
    main()
