"""A translator of Firefox in its own engine (WebAssembly, under node) and as an imported run.

npm install --prefix ENGINE @browsermt/bergamot-translator@0.4.9
scripts/bench firefox FOLDER LINES ENGINE [--precision float32|int8shiftAlphaAll|int8shiftAll] [--limit 100]
scripts/bench firefox --random tiny|base-memory|base --vocabularies 1|2 --engine ENGINE (see _firefox_agreement.py)
scripts/bench firefox speed --engine ENGINE (see _firefox_speed.py)

FOLDER is one that `attent import` takes. The engine runs a model of 8 bits in 8 bits alone, one of floats in float32.
Both translate one sentence at a time on one core, greedily, with at most twice the tokens of the source. The engine's
products of 8 bits add pairs in 16 bits with saturation, ours do not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from _firefox_agreement import main as agreement
from _firefox_speed import main as speed
from _sides import head, table

from attent.runs.config import DType
from attent.runs.hugging_face import import_run
from attent.runs.hugging_face.marian import MarianFolder
from attent.search.settings import SearchSettings
from attent.tasks.translation.translator import load

# By the engine's precision: the type of our weights, and whether activations are rounded by the file's factors.
PRECISIONS: dict[str, tuple[DType, bool]] = {
    "float32": ("float32", False),
    "int8shiftAlphaAll": ("int8", True),
    "int8shiftAll": ("int8", False),
}


def engine(folder: Path, lines: Path, home: Path, precision: str, scratch: Path) -> dict[str, Any]:
    """Return the engine's seconds and translations."""
    source = MarianFolder(folder)
    names = source.find("*.bin")[:1] + (source.find("vocab.*.spm") or source.find("srcvocab.*", "trgvocab.*"))
    if len(names) == 2 and "srcvocab" in names[1]:
        names += source.find("trgvocab.*")
    files = [scratch / name.removesuffix(".gz") for name in names]
    for name, file in zip(names, files, strict=True):
        file.write_bytes(source.bytes(name, 2**32))
    script = Path(__file__).with_name("_firefox_engine.mjs")
    out, (model, *vocabularies) = scratch / "out.json", files
    subprocess.run(["node", script, home, model, lines, out, precision, "0", *vocabularies], check=True)
    return json.loads(out.read_text("utf-8"))


def main() -> None:
    """Translate by both, and print the shares."""
    if sys.argv[1:2] == ["speed"]:
        speed(sys.argv[2:])
        return
    if any(argument.startswith("--random") for argument in sys.argv[1:]):
        agreement(sys.argv[1:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("lines", type=Path)
    parser.add_argument("engine", type=Path)
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--limit", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dtype, is_fixed = PRECISIONS[options.precision]
    lines = [line for line in options.lines.read_text("utf-8").splitlines() if line][: options.limit]
    with TemporaryDirectory() as name:
        scratch = Path(name)
        (scratch / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
        theirs = engine(options.folder, scratch / "lines.txt", options.engine.resolve(), options.precision, scratch)
        import_run(options.folder, scratch / "run", fixed_activations=is_fixed)
        translator = load(scratch / "run", dtype=dtype)
        settings = [SearchSettings(maximum_length=2 * max(len(translator.read(line).ids), 1)) for line in lines]
        translator.search([lines[0]], settings[0])
        begin = time.perf_counter()
        ours = [translator.search([line], each)[0][0].text for line, each in zip(lines, settings, strict=True)]
        seconds = time.perf_counter() - begin
    equal = sum(one == other for one, other in zip(ours, theirs["translations"], strict=True))
    head(f"Firefox's engine and attent, {options.folder.name}, {options.precision}, {len(lines)} sentences")
    table(
        ["equal translations", "engine, sentences/s", "attent, sentences/s", "attent / engine"],
        [
            [
                f"{equal} of {len(lines)}",
                *(f"{len(lines) / side:.1f}" for side in (theirs["seconds"], seconds)),
                f"{theirs['seconds'] / seconds:.2f}",
            ]
        ],
    )


if __name__ == "__main__":
    main()
