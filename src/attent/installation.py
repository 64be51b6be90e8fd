"""The state of this installation for `attent doctor`: versions, extras, devices, kernels and folders."""

import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from attent.errors import VersionError
from attent.requirements import is_older

COMPILERS = ("c++", "g++", "clang++", "cl")
DATA = "ATTENT_DATA"
ABSOLUTE = re.compile(r"(?<![\w~./])(?:/|[A-Z]:\\)[^\s,;:)]+")
# A requirement such as 'torch>=2.11', 'onnx>=1.23; extra == "onnx"' or 'attent[cli]; extra == "plot"'.
REQUIREMENT = re.compile(r"""([\w.-]+)(?:\[([\w,-]+)\])?(?:>=([\d.]+))?(?:.*extra == ["']([\w-]+)["'])?""")


class _Requirement(NamedTuple):
    """A package that attent requires.

    Args:
        package: the name of the package.
        extras: the package's own extras that are required, joined by commas.
        oldest: the oldest supported version.
        extra: the extra of attent that requires it; None for a core requirement.
    """

    package: str
    extras: str | None
    oldest: str | None
    extra: str | None


class Findings:
    """Lines to print, and the problems found."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.problems: list[str] = []

    def add(self, title: str, text: str) -> None:
        """Add a line."""
        self.lines.append(f"{title:<10} {text}")

    def report(self) -> str:
        """Return all as Markdown for an issue, with versions, without the user's name and folders outside the home."""
        packages = sorted({required.package for required in _requirements() if required.extra != "dev"} - {"attent"})
        versions = ", ".join(f"{name} {version}" for name in packages if (version := _version(name)))
        problems, home = [f"broken     {problem}" for problem in self.problems], f"{Path.home()}{os.sep}"
        text = "\n".join([*self.lines, f"versions   {versions}", *problems])
        text = ABSOLUTE.sub(lambda path: path[0].replace(home, "~/", 1) if path[0].startswith(home) else "PATH", text)
        return f"```text\n{text}\n```"


def examine() -> Findings:
    """Collect versions, extras, devices, the compiled extension, the processor's row, and folders.

    A required library that is missing or too old counts as a problem, and so does an extension that does not load.
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
        # a broken library may raise anything during its import
        remedy = str(error).rpartition(": ")[2]
        # a library that is too old has already been reported
        if not (isinstance(error, VersionError) and any(problem.endswith(remedy) for problem in findings.problems)):
            findings.problems.append(
                f"attent cannot compute here: {' '.join(str(error).split()) or type(error).__name__}"
            )
    data = os.environ.get(DATA)
    missing = "" if data is None or Path(data).is_dir() else ", which is not a folder"
    findings.add(
        "data", f"{DATA} is not set; it names the folder of corpora" if data is None else f"{data} ({DATA}){missing}"
    )
    return findings


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _requirements() -> Iterator[_Requirement]:
    with suppress(metadata.PackageNotFoundError):
        matches = map(REQUIREMENT.match, metadata.requires("attent") or ())
        yield from (_Requirement(*match.groups()) for match in matches if match)


def _report_packages(findings: Findings) -> None:
    required: list[str] = []
    extras: dict[str, list[_Requirement]] = {}
    for requirement in _requirements():
        package, _, oldest, extra = requirement
        if extra is not None:
            extras.setdefault(extra, []).append(requirement)
            continue
        installed = _version(package)
        required.append(f"{package} {installed or 'missing'}")
        if not _is_usable(requirement):
            problem = f"{package} {installed} is too old" if installed else f"{package} is not installed"
            findings.problems.append(f"{problem}: pip install --upgrade '{package}>={oldest}'")
    findings.add("required", ", ".join(required) or "unknown: attent is not installed but run from its source")
    names = extras.keys() - {"dev"}
    installed = {name for name in names if _is_installed(name, extras)}
    findings.add("extras", ", ".join(sorted(installed)) or "none")
    missing = ", ".join(sorted(names - installed))
    findings.add(
        "missing", f"{missing}  (optional: in a clone of attent, pip install '.[NAME]')" if missing else "none"
    )


def _is_usable(requirement: _Requirement) -> bool:
    installed = _version(requirement.package)
    return installed is not None and not (requirement.oldest and is_older(installed, requirement.oldest))


def _is_installed(extra: str, extras: dict[str, list[_Requirement]]) -> bool:
    """Return whether all packages of an extra are installed, including those of the extras that it contains."""
    return all(
        all(_is_installed(name, extras) for name in (requirement.extras or "").split(","))
        if requirement.package == "attent"
        else _is_usable(requirement)
        for requirement in extras.get(extra, [])
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
        findings.add("extension", "compiled, but does not load here, and plain PyTorch is used instead, more slowly")
        findings.problems.append(f"the extension does not load ({problem}): reinstall attent, which compiles it")
    else:
        compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
        remedy = (
            f"reinstall attent, which finds {compiler}"
            if compiler
            else f"no compiler was found ({', '.join(COMPILERS)})"
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
