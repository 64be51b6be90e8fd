"""Whatever is typed, pointed at, switched and refused in whichever order: no part of the page shows another state."""

from __future__ import annotations

import random
from typing import Any

import pytest

from attent.explorer.server import ExploreServer
from attent.tasks.translation.stepwise import StepwiseDecoding
from attent.tasks.translation.translator import Translator

pytestmark = pytest.mark.slow

SEQUENCES = 60
TEXTS = ("abc", "bad", "cab", "a", "dead bed")
REFUSED = "refused"
# What parts of the page say at one moment; parts that are pale are of the question before, and are left out.
SEEN = """() => {
    const isPale = (node) => Boolean(node?.closest(".former"));
    const text = (selector) => document.querySelector(selector)?.textContent ?? "";
    const answer = document.querySelector(".answer");
    const shown = [...document.querySelectorAll(".written li")].findIndex((li) => li.classList.contains("shown"));
    const readout = document.querySelector(".zoom .readout");
    const head = document.querySelector("button.head[aria-selected=true]");
    return {
        status: text(".status"), isWrong: Boolean(document.querySelector(".wrong")),
        isPale: isPale(answer), read: [...document.querySelectorAll(".read li bdi")].map((bdi) => bdi.textContent),
        written: [...document.querySelectorAll(".written bdi")].map((bdi) => bdi.textContent), shown,
        said: text(".answer .said bdi"),
        weights: [...document.querySelectorAll(".read li")].map((li) => li.dataset.weight),
        links: document.querySelectorAll(".answer .links path").length,
        view: document.querySelectorAll(".view > *").length,
        row: readout && !isPale(readout) ? Number(readout.dataset.row) : null, title: text(".grid h2"),
        head: head?.getAttribute("aria-label") ?? "", group: text(".groups [aria-pressed=true]"),
    };
}"""


class Expected:
    """The answers of the model, by text."""

    def __init__(self, translator: Translator) -> None:
        self._answers: dict[str, tuple[list[str], dict[str, Any]]] = {}
        for text in TEXTS:
            decoding = StepwiseDecoding(translator, text)
            pieces = [step.chosen.piece for step in decoding]
            maps = {name: labelled.weights[0] for name, labelled in decoding.map().items()}
            self._answers[text] = pieces, maps

    def pieces(self, text: str) -> list[str]:
        return self._answers[text][0]

    def weights(self, text: str, layer: int, head: int | None, place: int) -> list[float]:
        found = self._answers[text][1][f"decoder.layers.{layer}.cross_attention"].reshape(2, len(self.pieces(text)), -1)
        return (found.mean(0) if head is None else found[head])[place].tolist()


def check_moment(seen: dict[str, Any]) -> None:
    """Check what holds at every moment, also while answers are on their way."""
    if seen["isWrong"]:
        assert not seen["read"] and not seen["written"] and not seen["links"] and not seen["view"], seen
        assert seen["said"] == "", seen
    elif not seen["isPale"] and seen["said"]:
        assert seen["said"] == seen["written"][seen["shown"]], seen
        assert len(seen["weights"]) == len(seen["read"]), seen


def check_end(seen: dict[str, Any], expected: Expected, text: str) -> None:
    """Check the whole page when nothing is on its way."""
    check_moment(seen)
    if text == REFUSED:
        assert seen["isWrong"]
        assert seen["status"] == "no such text"
        return
    pieces = expected.pieces(text)
    assert not seen["isWrong"] and not seen["isPale"], seen
    assert [piece.replace("␣", " ") for piece in seen["read"]] == [*text], seen
    assert seen["written"] == pieces, seen
    place = seen["shown"]
    layer, head = 1, None
    if seen["head"]:
        words = seen["head"].replace("mean over heads", "head mean").replace(",", "").split()
        layer, head = int(words[1]), None if words[3] == "mean" else int(words[3])
    if "cross" in seen["group"]:
        assert seen["row"] == place, seen
        assert seen["title"] == f"Layer {layer}, {'mean of 2 heads' if head is None else f'head {head}'}", seen
        weights = expected.weights(text, layer, head, place)
        assert [float(weight) for weight in seen["weights"]] == pytest.approx(weights, rel=1e-3), seen


def act(page: Any, random_: random.Random) -> str | None:
    """Do something; return the text if it was another one."""
    kind = random_.choice(("type", "type", "refuse", "hover", "click", "head", "escape", "matrix", "group"))
    if kind in ("type", "refuse"):
        text = REFUSED if kind == "refuse" else random_.choice(TEXTS)
        page.fill("#text", text)
        if random_.random() < 0.5:
            page.locator("#text").press("Enter")
        return text
    script = {
        "hover": "[...document.querySelectorAll('.written button')].at(-2)"
        "?.dispatchEvent(new PointerEvent('pointerenter'))",
        "click": "document.querySelector('.written button')?.click()",
        "head": f"[...document.querySelectorAll('button.head')].at({random_.randrange(4)})?.click()",
        "escape": "void 0",
        "matrix": "document.querySelector('.zoom canvas')?.focus()",
        "group": f"document.querySelectorAll('.groups button')[{random_.randrange(3)}]?.click()",
    }[kind]
    page.evaluate(f"() => {{ {script}; }}")
    if kind == "escape":
        page.keyboard.press("Escape")
    if kind == "matrix":
        page.keyboard.press("Enter")
    return None


def test_no_part_shows_another_state(served: ExploreServer, window: Any, translator: Translator, wait: Any) -> None:
    expected, random_ = Expected(translator), random.Random(5)
    page = window.open(served.address)
    wait.view(page)

    def slow(route: Any) -> None:
        # answers overtake each other
        delay = random_.choice((0, 0, 0, 20, 100))
        page.wait_for_timeout(delay) if delay else None
        route.continue_()

    def answer(route: Any) -> None:
        if REFUSED in (route.request.post_data or ""):
            route.fulfill(status=400, json={"error": "no such text"})
        else:
            slow(route)

    asked: set[Any] = set()
    page.on("request", lambda request: asked.add(request))
    page.on("requestfinished", lambda request: asked.discard(request))
    page.on("requestfailed", lambda request: asked.discard(request))
    page.route("**/api/scenes/**", slow)
    page.route("**/api/translate", answer)
    for _ in range(SEQUENCES):
        text = page.input_value("#text")
        for _ in range(random_.randint(1, 5)):
            text = act(page, random_) or text
            check_moment(page.evaluate(SEEN))
            page.wait_for_timeout(random_.choice((0, 10, 60)))
        page.keyboard.press("Escape")
        settled(page, asked)
        check_end(page.evaluate(SEEN), expected, text)
    window.wrong = [wrong for wrong in window.wrong if "status of 400" not in wrong]


def settled(page: Any, asked: set[Any]) -> None:
    """Wait until no request is on its way and nothing changes any more, longer than typing is waited for."""
    page.wait_for_timeout(360)
    before, quiet = None, 0
    while quiet < 3:
        now = page.evaluate(SEEN)
        is_waiting = now["isPale"] or now["status"].endswith("…") or (now["row"] is None and not now["isWrong"])
        quiet = quiet + 1 if now == before and not is_waiting and not asked else 0
        before = now
        page.wait_for_timeout(30)
