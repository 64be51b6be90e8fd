"""Gold links for `attent align` from a statistical aligner.

The aligner is eflomal (Östling and Tiedemann 2016), which `scripts/peers eflomal` installs.

    scripts/bench links --source SOURCE --target TARGET [--more-source FILE --more-target FILE] > links.txt

The aligner is trained in both directions on the pairs, and on the additional pairs of --more-source and --more-target.
Links found in both directions are sure, links found in one are possible. Files contain one sentence per line, with
words separated by spaces, and may be .gz.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from _peers import python

from attent.alignment.pharaoh import parse, pharaoh
from attent.alignment.symmetrization import symmetrize
from attent.errors import DataError
from attent.text.readers import read_lines


def main() -> None:
    """Print the links of each pair in one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--more-source")
    parser.add_argument("--more-target")
    options = parser.parse_args()
    if not (python("eflomal").parent / "eflomal-align").is_file():
        sys.exit("there is no eflomal: scripts/peers eflomal makes its environment")
    if (options.more_source is None) != (options.more_target is None):
        sys.exit("--more-source and --more-target go together")
    try:
        pairs = _pairs(options.source, options.target)
        corpus = pairs if options.more_source is None else pairs + _pairs(options.more_source, options.more_target)
    except DataError as error:
        sys.exit(str(error))
    if not pairs:
        sys.exit(f"there are no lines in {options.source}")
    forward, backward = eflomal_links(corpus)
    for number in range(len(pairs)):
        forward_links, backward_links = parse(forward[number]).sure, parse(backward[number]).sure
        sure = symmetrize(forward_links, backward_links, "intersection")
        print(pharaoh(sure, symmetrize(forward_links, backward_links, "union")))


def _pairs(source: str, target: str) -> list[tuple[str, str]]:
    try:
        return list(zip(read_lines(source), read_lines(target), strict=True))
    except ValueError:
        raise DataError(f"{source} and {target} do not have as many lines") from None


def eflomal_links(pairs: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Return each pair's links from both directions, written as source-target; eflomal must be installed."""
    aligner = python("eflomal").parent / "eflomal-align"
    with tempfile.TemporaryDirectory() as folder:
        names = {side: Path(folder, side) for side in ("source", "target", "forward", "backward")}
        for side, texts in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
            names[side].write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        files = [item for option, side in zip("stfr", names, strict=True) for item in (f"-{option}", str(names[side]))]
        subprocess.run(
            [str(python("eflomal")), str(aligner), "--overwrite", "--model", "3", *files], check=True, stdout=sys.stderr
        )
        forward, backward = (names[side].read_text(encoding="utf-8").splitlines() for side in ("forward", "backward"))
        return forward, backward


if __name__ == "__main__":
    main()
