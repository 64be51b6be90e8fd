"""The page of a run that computes in the browser: its size, its first paint, and the time of an answer.

Each text of a file is typed at once into the page of a translator, and the time runs until its translation is whole.
Frames are counted while the pointer passes over the words, and while the matrix is dragged. It needs playwright, and
Chromium on the path.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from attent.formats.html import write_page

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
]
# Openings of the page, and pointer events of a drag.
OPENINGS, MOVES = 5, 120
ANSWER = """(text) => new Promise((resolve) => {
    const [field, status] = [document.querySelector("#text"), document.querySelector(".run .status")];
    const begin = performance.now();
    const seen = new MutationObserver(() => {
        // it says so while it writes
        if (status.textContent.endsWith("…")) return;
        seen.disconnect();
        const tokens = document.querySelectorAll(".written li").length;
        resolve({ milliseconds: performance.now() - begin, tokens, text: status.textContent });
    });
    seen.observe(status, { childList: true, subtree: true, characterData: true });
    field.value = text;
    field.dispatchEvent(new Event("input", { bubbles: true }));
})"""
COUNT = """() => {
    window.frames_ = [];
    const tick = (now) => { window.frames_.push(now); requestAnimationFrame(tick); };
    requestAnimationFrame(tick);
}"""
RATE = "() => { const all = window.frames_; return (1000 * (all.length - 1)) / (all.at(-1) - all[0]); }"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the run folder of a translator")
    parser.add_argument("texts", type=Path, help="a text per line")
    options = parser.parse_args()
    texts = options.texts.read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder:
        file = write_page(options.run, Path(folder) / "page.html", examples=texts[:1])
        print(json.dumps({"bytes": file.stat().st_size, **measured(file, texts)}))


def measured(file: Path, texts: list[str]) -> dict[str, Any]:
    """Return the milliseconds of paints and answers, and the frames per second."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        paints = []
        for _ in range(OPENINGS):
            window = browser.new_page(viewport={"width": 1280, "height": 800})
            window.goto(file.resolve().as_uri())
            window.wait_for_selector(".zoom canvas[data-complete='true']")
            paints.append(window.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            if len(paints) < OPENINGS:
                window.close()
        answers = []
        for text in texts:
            answers.append(window.evaluate(ANSWER, text))
            # the view of one text is drawn before the next is typed
            window.wait_for_timeout(400)
        rates = {"words": frames(window, ".written li"), "matrix": frames(window, ".zoom canvas", drags=True)}
        browser.close()
    milliseconds = [answer["milliseconds"] for answer in answers]
    return {
        "first_paint": summary(paints),
        "answer": summary(milliseconds),
        "token": summary([each["milliseconds"] / max(each["tokens"], 1) for each in answers]),
        "frames_per_second": rates,
        "texts": len(texts),
    }


def frames(window: Any, place: str, *, drags: bool = False) -> float:
    """Return the frames per second while the pointer moves to and fro over an element."""
    box = window.locator(place).first.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    window.mouse.move(*middle)
    if drags:
        for _ in range(4):
            window.mouse.wheel(0, -300)
        window.mouse.down()
    window.evaluate(COUNT)
    for move in range(MOVES):
        reach = 4 * (move % 30) if move // 30 % 2 == 0 else 4 * (30 - move % 30)
        window.mouse.move(middle[0] + (reach - 60 if drags else reach), middle[1] + (reach - 60 if drags else 0))
    rate = float(window.evaluate(RATE))
    if drags:
        window.mouse.up()
    return round(rate, 1)


def summary(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 1), "most": round(max(values), 1)}


if __name__ == "__main__":
    main()
