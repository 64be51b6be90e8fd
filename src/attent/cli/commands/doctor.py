"""attent doctor: versions, devices, kernels and folders of this installation, on one screen."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import typer

from attent.cli.output import one_line, say, write
from attent.errors import VersionError
from attent.requirements import is_older

COMPILERS = ("c++", "g++", "clang++", "cl")
DATA = "ATTENT_DATA"
# A requirement such as 'torch>=2.11' or 'onnx>=1.23; extra == "onnx"'.
REQUIREMENT = re.compile(r"""([\w.-]+)(?:>=([\d.]+))?(?:.*extra == ["']([\w-]+)["'])?""")


class Findings:
    """Lines for the screen, and what is broken."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.problems: list[str] = []

    def add(self, title: str, text: str) -> None:
        """Add a line."""
        self.lines.append(f"{title:<10} {text}")


def doctor() -> None:
    """Say what attent runs on: versions, extras, devices, the compiled extension, the processor's row, and folders.

    The exit code is 0 unless something is broken: a required library that is missing or too old, or an extension that
    does not load.
    """
    findings = Findings()
    findings.add(
        "attent",
        f"{_version('attent') or 'not installed'}, Python {platform.python_version()}, {platform.platform(terse=True)}",
    )
    _report_packages(findings)
    try:
        _report_machine(findings)
    except Exception as error:
        # whatever a broken library raises while it is imported
        remedy = str(error).rpartition(": ")[2]
        # that a library is too old was found already
        if not (isinstance(error, VersionError) and any(problem.endswith(remedy) for problem in findings.problems)):
            findings.problems.append(f"attent cannot compute here: {one_line(error) or type(error).__name__}")
    data = os.environ.get(DATA)
    missing = "" if data is None or Path(data).is_dir() else ", which is no folder"
    findings.add(
        "data", f"{DATA} is not set; it names the folder of corpora" if data is None else f"{data} ({DATA}){missing}"
    )
    write("\n".join(findings.lines))
    for problem in findings.problems:
        say(f"broken: {problem}")
    if findings.problems:
        raise typer.Exit(2)


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _requirements() -> Iterator[tuple[str, str | None, str | None]]:
    """Yield each package that attent requires, with its oldest version and its extra if there are such."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("attent") or []
    except PackageNotFoundError:
        lines = []
    for line in lines:
        if match := REQUIREMENT.match(line):
            yield match[1], match[2], match[3]


def _report_packages(findings: Findings) -> None:
    required: list[str] = []
    extras: dict[str, bool] = {}
    for package, oldest, extra in _requirements():
        installed = _version(package)
        is_usable = installed is not None and not (oldest and is_older(installed, oldest))
        if extra is None:
            required.append(f"{package} {installed or 'missing'}")
            if not is_usable:
                findings.problems.append(
                    f"{package} {installed or ''} is too old" if installed else f"{package} is not installed"
                )
                findings.problems[-1] += f": pip install --upgrade '{package}>={oldest}'"
        elif extra != "dev":
            extras[extra] = extras.get(extra, True) and is_usable
    findings.add("required", ", ".join(required) or "unknown: attent is not installed, and runs from its source")
    for title, is_installed in (("extras", True), ("missing", False)):
        names = [extra for extra, value in sorted(extras.items()) if value is is_installed]
        findings.add(
            title,
            ", ".join(names) + ("" if is_installed else "  (optional: pip install 'attent[NAME]')")
            if names
            else "none",
        )


def _report_machine(findings: Findings) -> None:
    import torch

    from attent.attention.backends.heuristics import calibration_file, current_row
    from attent.devices import core_count, described, devices, processor
    from attent.ops.eligibility import library_problem, processor_class

    findings.add("devices", ", ".join(described(torch.device(name)) for name in devices()))
    problem, is_compiled = library_problem()
    if problem is None:
        findings.add("extension", f"compiled, running for {processor_class()}")
    elif is_compiled:
        findings.add("extension", "compiled, but does not load; plain PyTorch computes the same, more slowly")
        findings.problems.append(f"the extension does not load ({problem}): install attent again, which compiles it")
    else:
        compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
        remedy = (
            f"install attent again, which finds {compiler}"
            if compiler
            else f"no compiler is here ({', '.join(COMPILERS)})"
        )
        findings.add("extension", f"not compiled, and plain PyTorch computes the same, more slowly: {remedy}")
    file = calibration_file()
    chosen = f"as {file} says" if file.is_file() else "by its class"
    findings.add(
        "processor",
        f"{processor()}: row {current_row().name}, {chosen}; {torch.get_num_threads()} threads, {core_count()} cores",
    )
    files = sorted(path.name for path in file.parent.iterdir()) if file.parent.is_dir() else []
    findings.add("cache", f"{file.parent} ({', '.join(files) or 'empty'})")
