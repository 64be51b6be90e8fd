"""How fast the playground aligns, and what each of its switches shows, over ten seeds.

    scripts/bench playground [--seeds 10] [--updates 600] [--only speed|switches]

The seconds are those of the page in headless Chromium on one core, from the button Train to the first score, one every
25 updates, with an alignment error rate of at most 0.1 on 100 sentences that were not trained on. The switches are
trained by the same modules under node.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
MODULES = ROOT / "src" / "attent" / "views" / "web" / "playground"
BAR = 0.1
# Seconds after which a training that does not align is given up.
LIMIT = 120
SETTINGS = {
    "as it begins": {},
    "positions off": {"positions": False},
    "one fixed vector": {"fixed": True},
    "W_Q = W_K = I": {"identity": True},
}
LENGTHS = ((3, 4), (5, 6), (7, 8), (9, 10))
TRAIN = """
import { ENCODED, Training, areRight, errorRate, forced, texts } from "./training.js";
import { HELD_OUT } from "./pairs.js";
import { DEFAULTS } from "./settings.js";
const [settings, updates] = JSON.parse(process.argv.at(-1));
const training = new Training({ ...DEFAULTS, ...settings });
// the share of a source word's weights on itself, on average over pairs that were not trained on
const ownShare = (model) => {
  const shareOf = (pair, place) => forced(model, pair).own.row(place)[place];
  const shares = ENCODED.pairs(HELD_OUT).flatMap((pair) => pair.source.map((_, place) => shareOf(pair, place)));
  return shares.reduce((sum, share) => sum + share) / shares.length;
};
const untrained = ownShare(training.model);
while (training.updates < updates) training.update();
const [right, lengths] = [areRight(training.model), texts(HELD_OUT).map(([source]) => source.length)];
const [error, own] = [errorRate(training.model), ownShare(training.model)];
console.log(JSON.stringify({ error, untrained, own, right, lengths }));
"""


def train(settings: dict[str, Any], updates: int) -> dict[str, Any]:
    """Train under node, and return the scores."""
    command = ["node", "--input-type=module", "--no-warnings", "--eval", TRAIN, json.dumps([settings, updates])]
    return json.loads(subprocess.run(command, cwd=MODULES, capture_output=True, text=True, check=True).stdout)


def aligned(page: Any) -> tuple[float, int] | None:
    """Train on a page; return the seconds and the updates until it is aligned."""
    page.click(".train")
    start = time.monotonic()
    while (seconds := time.monotonic() - start) < LIMIT:
        error, updates = page.evaluate(
            "(({ error, updates }) => [error, updates])(document.querySelector('.scores').dataset)"
        )
        if error is not None and float(error) <= BAR and int(updates):
            return seconds, int(updates)
        page.wait_for_timeout(20)
    return None


def speed(seeds: int) -> list[tuple[float, int] | None]:
    """Return the seconds and updates until the page is aligned, for each seed."""
    from playwright.sync_api import sync_playwright

    sys.path.insert(0, str(ROOT / "scripts"))
    from site_playground import page as build

    # browser and worker share a core
    os.sched_setaffinity(0, {0})
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file = Path(folder) / "playground.html"
        file.write_text(build(), encoding="utf-8")
        path = os.environ.get("CHROMIUM") or shutil.which("chromium")
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        results = list[tuple[float, int] | None]()
        for seed in range(seeds):
            page = browser.new_page()
            page.goto(f"{file.as_uri()}#seed={seed}")
            page.wait_for_selector(".list li")
            results.append(aligned(page))
            print(seed, results[-1], os.getloadavg()[0], file=sys.stderr, flush=True)
            page.close()
        browser.close()
    return results


def row(name: str, cells: list[dict[str, Any]]) -> str:
    """Return the table row of a setting: medians over seeds, with the smallest and the largest."""

    def spread(values: list[float]) -> str:
        return f"{100 * median(values):.0f} ({100 * min(values):.0f} to {100 * max(values):.0f})"

    def share(cell: dict[str, Any], least: int, most: int) -> float:
        own = [right for right, length in zip(cell["right"], cell["lengths"], strict=True) if least <= length <= most]
        return sum(own) / len(own)

    columns = [spread([share(cell, *bounds) for cell in cells]) for bounds in ((0, 99), *LENGTHS)]
    columns += [spread([cell[name] for cell in cells]) for name in ("error", "untrained", "own")]
    return f"| {name} | {' | '.join(columns)} |"


def main() -> None:
    """Measure, and print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--only", choices=("speed", "switches"))
    options = parser.parse_args()
    if options.only != "switches":
        print("| seed | seconds | updates |\n|---|---|---|")
        for seed, result in enumerate(speed(options.seeds)):
            print(f"| {seed} | {f'{result[0]:.1f} | {result[1]}' if result else f'more than {LIMIT} | –'} |")
    if options.only != "speed":
        lengths = " | ".join(f"{least} to {most} words" for least, most in LENGTHS)
        print(f"\n| | right | {lengths} | AER | on itself, untrained | trained |\n|{'---|' * 9}")
        for name, settings in SETTINGS.items():
            cells = [train(settings | {"seed": seed}, options.updates) for seed in range(options.seeds)]
            print(row(name, cells), flush=True)


if __name__ == "__main__":
    main()
