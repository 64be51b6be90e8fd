"""attent explore on a long text: the time to the first tile, the times of panning and zooming, and the server's memory.

    scripts/bench explore --tokens 20000 --heads 12

A page is opened in Chromium (`chromium` on the path, or the one named by CHROMIUM). Times are measured from an event in
the page until all visible tiles are drawn; the server's processor time in seconds is in parentheses.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from _machine import memory_growth, peak_memory
from playwright.sync_api import sync_playwright

import attent
from attent.attention import prepare

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
]
# Move; return the milliseconds until all visible tiles are drawn, and the zoom level.
MOVED = """async ([kind, x, y]) => {
    const canvas = document.querySelector(".zoom canvas");
    const box = canvas.getBoundingClientRect();
    const at = { clientX: box.left + x, clientY: box.top + y, bubbles: true, cancelable: true, pointerId: 1 };
    canvas.setPointerCapture = () => {};
    const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
    const start = performance.now();
    if (kind === "in" || kind === "out") {
        canvas.dispatchEvent(new WheelEvent("wheel", { ...at, deltaY: kind === "in" ? -385.1 : 385.1 }));
    }
    else {
        canvas.dispatchEvent(new PointerEvent("pointerdown", at));
        const end = { ...at, clientX: at.clientX - 300, clientY: at.clientY - 300 };
        canvas.dispatchEvent(new PointerEvent("pointermove", end));
        canvas.dispatchEvent(new PointerEvent("pointerup", end));
    }
    await frame();
    await frame();
    while (canvas.dataset.complete !== "true") await frame();
    return [performance.now() - start, Number(canvas.dataset.level)];
}"""
FIRST = """async () => {
    const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
    const zoom = () => document.querySelector(".zoom canvas");
    const tiles = () => performance.getEntriesByType("resource").filter((one) => one.name.includes("/tile?"));
    while (!tiles().length) await frame();
    const first = tiles()[0].responseEnd;
    while (zoom()?.dataset.complete !== "true") await frame();
    return [first, performance.now()];
}"""


def main() -> None:
    """Measure the page and the server, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=64, help="of a head")
    parser.add_argument("--head", default="0", help="a number, or mean")
    options = parser.parse_args()
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, options.heads, options.tokens, options.width)
    weights = attent.AttentionMap.of(prepare(query, key, key[..., :0]))
    print(
        f"{options.heads} heads, {options.tokens:,} x {options.tokens:,} weights each, {torch.get_num_threads()} "
        "threads"
    )
    lines: list[str] = []
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    # the browser's driver is started first, so that its memory is not counted as the server's
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        more = memory_growth(lambda: lines.extend(_measure(weights, options.head, browser)))
        browser.close()
    print("\n".join(lines))
    print(
        f"server memory: {more:.0f} MiB more than before it started, {peak_memory():.0f} MiB in all"
        if more is not None
        else "server memory: unknown on this system"
    )


def _measure(weights: attent.AttentionMap, head: str, browser: Any) -> list[str]:
    lines: list[str] = []
    with attent.explore(weights, title="long") as exploring:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        (first, whole), computed = _timed(lambda: (page.goto(exploring.address), page.evaluate(FIRST))[1])
        lines.append(
            f"opened: first tile {first:6.0f} ms, all visible tiles {whole:6.0f} ms  (server {computed:.2f} s)"
        )
        page.locator(".choices select").nth(2).select_option(head)
        time.sleep(0.2)
        (milliseconds, _), computed = _timed(lambda: page.evaluate(MOVED, ["out", 300, 300]))
        lines.append(f"head {head} chosen: all visible tiles {milliseconds + 200:6.0f} ms  (server {computed:.2f} s)")
        lines += _moves(page)
        page.close()
    return lines


def _moves(page: Any) -> list[str]:
    took: dict[str, list[tuple[float, float, int]]] = {"zoom": [], "pan": []}
    for _ in range(6):
        for kind, move in (("zoom", "in"), ("pan", "pan"), ("pan", "pan")):
            (milliseconds, level), computed = _timed(lambda move=move: page.evaluate(MOVED, [move, 350, 350]))
            took[kind].append((milliseconds, computed, level))
    lines: list[str] = []
    for kind, samples in took.items():
        times = [sample[0] for sample in samples]
        levels = ", ".join(
            f"level {level} {milliseconds:.0f} ms ({computed:.2f} s)" for milliseconds, computed, level in samples
        )
        lines.append(f"  {kind}: median {statistics.median(times):.0f} ms, longest {max(times):.0f} ms; {levels}")
    return lines


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    before = time.process_time()
    return work(), time.process_time() - before


if __name__ == "__main__":
    main()
