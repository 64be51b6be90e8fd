"""The page of `attent explore` in a real browser."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

import pytest

from attent.explorer.explorer import Explorer
from attent.explorer.loaded_run import LoadedRun
from attent.explorer.server import ExploreServer
from attent.tasks.fill_mask.fill_mask import FillMask
from attent.tasks.translation.stepwise import StepwiseDecoding, labels
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import CharTokenizer
from attent.views.scene import Text

pytestmark = pytest.mark.slow

SIZES = pytest.mark.parametrize(("size", "dark"), [((1280, 800), False), ((390, 844), True)], ids=["wide", "narrow"])


def written(translator: Translator, text: str, prefix: Sequence[int] = ()) -> tuple[list[int], str]:
    """What the model writes, as tokens and as text."""
    growing = StepwiseDecoding(translator, text, prefix)
    for _ in growing:
        pass
    return growing.tokens, translator.target_tokenizer.decode(growing.tokens)


def shown(page: Any) -> float:
    return float(page.locator(".zoom .readout").get_attribute("data-value"))


def exact(page: Any, weights: Any) -> bool:
    """Whether the weight that is shown is that of the cell that is named, both read at once."""
    row, column, value = page.locator(".zoom .readout").evaluate(
        "readout => [readout.dataset.row, readout.dataset.column, readout.dataset.value || 'NaN'].map(Number)"
    )
    return value == pytest.approx(weights[row, column].item(), rel=1e-4)


def arrived(page: Any, held: list[Any], count: int) -> None:
    """Wait until so many requests are held back."""
    for _ in range(600):
        if len(held) == count:
            return
        page.wait_for_timeout(100)
    pytest.fail(f"{len(held)} of {count} requests came")


@pytest.fixture
def page(served: ExploreServer, window: Any, translator: Translator, wait: Any) -> Any:
    """The page of a run that has translated a text."""
    page = window.open(served.address)
    wait.ended(page, written(translator, "abc")[1])
    return page


@SIZES
def test_typing_translates_and_an_edited_token_is_gone_on_from(
    served: ExploreServer, window: Any, translator: Translator, size: tuple[int, int], dark: bool, wait: Any
) -> None:
    page = window.open(served.address, size=size, dark=dark)
    wait.ended(page, written(translator, "abc")[1])
    page.fill("#text", "bad")
    tokens, text = written(translator, "bad")
    wait.ended(page, text)
    assert page.locator(".written button bdi").all_inner_texts() == [
        *labels(translator.target_tokenizer, tokens),
        "</s>",
    ]
    assert page.locator(".read li bdi").all_inner_texts() == [*"bad"]
    # the second token becomes another, and the model goes on from there
    page.locator(".written button").nth(1).click()
    offers = page.locator(".offers button bdi").all_inner_texts()
    window.picture(page, f"explore-{size[0]}-edit")
    page.locator(".offers button").nth(1).click()
    chosen = [tokens[0], *translator.target_tokenizer.encode(offers[1])]
    assert chosen[1] != tokens[1]
    wait.ended(page, written(translator, "bad", chosen)[1])
    assert page.locator(".written .forced").count() == 2
    focused = "[...document.querySelectorAll('.written button')].indexOf(document.activeElement)"
    assert page.evaluate(focused) == 1
    # and the third whatever is typed
    page.locator(".written button").nth(2).focus()
    page.keyboard.press("Enter")
    page.fill(".instead input", "65")
    page.keyboard.press("Enter")
    wait.ended(page, written(translator, "bad", [*chosen, *translator.target_tokenizer.encode("65")])[1])
    assert page.evaluate(focused) == 2
    window.picture(page, f"explore-{size[0]}", whole=True)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_clicks_choose_layer_and_head_and_hovering_shows_the_weight(
    served: ExploreServer, window: Any, translator: Translator, wait: Any
) -> None:
    page = window.open(served.address)
    wait.ended(page, result := written(translator, "abc")[1])
    page.locator(".heads .row").nth(1).locator("button").nth(1).click()  # layer 0, head 1
    wait.view(page)
    assert page.inner_text(".grid h2") == "Layer 0, head 1"
    weights = translator.map("abc", result)["decoder.layers.0.cross_attention"].weights
    wait.to_cell(page, 1, 1)
    assert shown(page) == pytest.approx(weights[0, 1, 1, 1].item(), abs=1e-6)


def test_a_long_map_is_zoomed_and_moved(long: tuple[ExploreServer, Any], window: Any, wait: Any) -> None:
    exploring, weights = long
    page = window.open(exploring.address)
    canvas = page.locator(".zoom canvas").first
    wait.view(page)
    page.click("button[aria-label='layer 0, head 0']")
    wait.view(page)
    level = int(canvas.get_attribute("data-level"))
    assert level >= 2
    message = page.locator(".zoom .level").inner_text()
    assert f"each cell stands for {2**level} × {2**level} weights" in message
    assert f"mean of {2**level} x {2**level} weights" in message
    window.picture(page, "explore-long", whole=True)
    # hovering shows the pooled number, and says so
    size = 2**level
    canvas.focus()
    page.keyboard.press("Escape")
    first, key = (int(page.locator(".zoom .readout").get_attribute(f"data-{name}")) for name in ("row", "column"))
    pooled = weights[0, 0, first : first + size, key : key + size].mean().item()
    assert shown(page) == pytest.approx(pooled, rel=1e-4)
    assert f"the mean of these {size} × {size} weights" in page.locator(".zoom .readout").inner_text()
    box = canvas.bounding_box()
    point = (box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.6)
    page.mouse.move(*point)
    for _ in range(12):
        page.mouse.wheel(0, -400)
    wait.until(page, "document.querySelector('.zoom canvas').dataset.level === '0'")
    wait.view(page)
    for drag in (0, 200):
        page.mouse.move(point[0] + drag / 10, point[1])
        wait.so_that(page, lambda: exact(page, weights[0, 0]), "the weight of the cell under the pointer")
        page.mouse.down()
        page.mouse.move(point[0] - drag, point[1] - drag, steps=4)
        page.mouse.up()
        wait.view(page)
    page.locator("button[aria-label='show all of the matrix']").click()
    wait.until(page, f"document.querySelector('.zoom canvas').dataset.level === '{level}'")


def test_what_is_made_of_some_rows_says_so(long: tuple[ExploreServer, Any], window: Any, wait: Any) -> None:
    exploring, weights = long
    page = window.open(exploring.address)
    # 18 million weights in all, of which 8 million are computed for the figures, and at most 17 million for a column
    page.click("summary")
    page.get_by_label("in place of each head, show").select_option("first")
    assert page.locator(".summary").inner_text().endswith("the mean over one row in 4")
    page.locator(".columns li").nth(1).focus()
    wait.until(page, "document.querySelector('.tokens .said').textContent === 'to t1'")
    text = page.locator(".tokens .readout").inner_text()
    assert text.endswith("of those that are known (mean over 2 heads, 1 row in 2 was computed)")
    row, value = re.findall(r"\u2068t(\d+)\u2069 ([\d.]+)", text)[1]
    assert float(value) == pytest.approx(weights[0, :, int(row), 1].mean().item(), rel=0.06)


def test_figures_are_those_of_the_group_that_is_shown(page: Any, wait: Any) -> None:
    wait.until(page, "document.querySelector('.summary').textContent.includes('the mean over all rows')")
    held: list[Any] = []
    page.route(re.compile("/summary"), lambda route: held.append(route))
    page.click("summary")
    page.get_by_label("in place of each head, show").select_option("first")
    page.click(".groups button[value=encoder]")
    arrived(page, held, 1)
    assert page.locator(".summary").inner_text() == ""
    held[0].continue_()
    wait.until(page, "document.querySelector('.summary').textContent.includes('the mean over all rows')")


PINCH = """() => {
    const canvas = document.querySelector(".zoom canvas");
    const box = canvas.getBoundingClientRect();
    canvas.setPointerCapture = () => {};
    const send = (type, pointerId, place) => {
        const at = { clientX: box.left + place, clientY: box.top + place };
        canvas.dispatchEvent(new PointerEvent(type, { pointerId, ...at, bubbles: true }));
    };
    send("pointerdown", 1, 150);
    send("pointerdown", 2, 170);
    for (let step = 8; step <= 64; step += 8) {
        send("pointermove", 1, 150 - step);
        send("pointermove", 2, 170 + step);
    }
    send("pointerup", 1, 86);
    send("pointerup", 2, 234);
}"""


def test_fingers_pinch(long: tuple[ExploreServer, Any], window: Any, wait: Any) -> None:
    page = window.open(long[0].address, size=(390, 844), has_touch=True)
    wait.view(page)
    before = page.locator(".zoom canvas").first.get_attribute("data-level")
    page.evaluate(PINCH)
    wait.until(page, f"Number(document.querySelector('.zoom canvas').dataset.level) < {before}")


def test_blanks_and_a_text_that_is_code(window: Any, filler: FillMask, wait: Any) -> None:
    with ExploreServer(Explorer([LoadedRun("blanks", "fill-mask", filler)]), port=0) as exploring:
        page = window.open(exploring.address)
        page.fill("#text", "the <script>alert(1)</script> was [MASK] .")
        page.wait_for_selector(".guesses ol", timeout=60_000)
        wait.view(page)
        assert page.locator(".guesses li").count() == 5
        assert "Not known to this model: <, script, >" in page.locator(".status").inner_text()
        page.fill("#text", "a blank in un[MASK]ed")
        page.wait_for_selector(".status.wrong")
        assert "MASK" in page.locator(".status").inner_text()
        # an answer that is an error is no error of the page, though the browser notes its status
        window.wrong = [wrong for wrong in window.wrong if "status of 400" not in wrong]
        window.check()


def test_without_the_token_the_page_says_what_to_open(served: ExploreServer, window: Any) -> None:
    page = window.open(f"http://127.0.0.1:{served.port}/#of-an-earlier-start")
    page.wait_for_selector("[role=alert]")
    assert "open the address that attent printed" in page.locator("[role=alert]").inner_text()
    window.wrong = [wrong for wrong in window.wrong if "status of 403" not in wrong]


def test_a_server_that_ended_is_asked_again_after_a_rest_and_every_view_says_so(
    window: Any, translator: Translator, wait: Any
) -> None:
    run = LoadedRun("dates", "translate", copy.deepcopy(translator))
    with ExploreServer(Explorer([run], text="abc"), port=0) as exploring:
        page = window.open(exploring.address)
        wait.ended(page, written(translator, "abc")[1])
        heads = "document.querySelectorAll('.head{}').length"
        wait.until(page, f"{heads.format(' canvas')} === {heads.format('')}")
    page.locator(".heads .row").nth(1).locator("button").nth(1).click()  # layer 0, head 1
    wait.until(page, "document.querySelector('.zoom .level').textContent.includes('the server does not answer')")
    wait.until(page, "document.querySelector('.answer .readout').textContent === 'the server does not answer'")
    request_count = len(window.requests)
    page.wait_for_timeout(1000)
    assert window.requests[request_count:] == []
    # the tile is asked for once more three seconds after it failed, and then after six
    page.wait_for_timeout(4000)
    assert ["/tile?" in address for address in window.requests[request_count:]] == [True]
    page.click(".groups button[value=encoder]")
    wait.until(page, "document.querySelector('.grid [role=status]').textContent === 'the server does not answer'")
    page.wait_for_timeout(500)
    # that nobody answers is no error of the page, though the browser notes it
    window.wrong = [wrong for wrong in window.wrong if "net::ERR_" not in wrong]


def test_a_view_that_another_replaced_hears_nothing(page: Any, window: Any, translator: Translator, wait: Any) -> None:
    page.evaluate("void (window.before = document.querySelector('.zoom .readout'))")
    text = page.evaluate("window.before.textContent")
    page.fill("#text", "bad")
    wait.until(page, "!window.before.isConnected")
    wait.ended(page, written(translator, "bad")[1])
    page.keyboard.press("Escape")
    page.wait_for_timeout(500)
    request_count = len(window.requests)
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(500)
    assert page.evaluate("window.before.textContent") == text
    assert sum("/summary?" in address for address in window.requests[request_count:]) == 1


def test_a_scene_that_comes_late_is_not_shown(page: Any, wait: Any) -> None:
    held: list[Any] = []
    page.route(re.compile(r"/api/scenes/\d+$"), lambda route: held.append(route))
    for count, text in enumerate(("bad", "cab"), 1):
        page.fill("#text", text)
        arrived(page, held, count)
    first, second = held
    second.continue_()
    wait.until(page, "document.querySelector('.view').dataset.title === 'cab'")
    first.continue_()
    page.wait_for_timeout(500)
    assert page.locator(".view").get_attribute("data-title") == "cab"


def test_a_token_of_the_translation_marks_rows_that_are_about_it_alone(page: Any, wait: Any) -> None:
    row = "document.querySelector('.zoom .readout').dataset.row"
    page.locator(".written button").nth(1).hover()
    wait.until(page, f"{row} === '1'")
    page.click(".groups button[value=encoder]")
    wait.until(page, "document.querySelector('.tokens .said').textContent.startsWith('from ')")
    said = page.inner_text(".tokens .said")
    page.locator(".written button").nth(0).hover()
    page.wait_for_timeout(300)
    assert page.inner_text(".tokens .said") == said


def test_a_row_of_the_matrix_selects_the_token_that_was_written(page: Any, wait: Any) -> None:
    wait.to_cell(page, 1, 1)
    page.keyboard.press("Enter")
    wait.until(page, "document.querySelectorAll('.written li')[1].classList.contains('shown')")


def test_what_is_replaced_is_underlined(page: Any, translator: Translator, wait: Any) -> None:
    tokens = written(translator, "abc")[0]
    page.locator(".written button").nth(1).click()
    offer = page.locator(".offers button").nth(1)
    forced = [tokens[0], *translator.target_tokenizer.encode(offer.locator("bdi").inner_text())]
    offer.click()
    page.wait_for_selector(".written .forced")
    wait.ended(page, written(translator, "abc", forced)[1])
    after = [int(token) for token in page.evaluate(CHANGED)]
    again = page.locator(".written li").count()
    assert after
    assert after[0] == 1
    # tokens that are the same as before are not
    assert all(place < again for place in after)
    assert 0 not in after
    assert len(tokens) > 1


CHANGED = "[...document.querySelectorAll('.written li')].flatMap((li, at) => li.matches('.changed') ? [at] : [])"


def test_a_far_row_is_found_among_the_tokens(long: tuple[ExploreServer, Any], window: Any, wait: Any) -> None:
    page = window.open(long[0].address)
    wait.view(page)
    box = page.locator(".zoom canvas").first.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.6)
    token = page.locator(".rows li[aria-selected='true']")
    token.wait_for()
    row = int(token.get_attribute("data-place"))
    assert row >= 1000
    assert page.inner_text(".tokens .said") == f"from t{row}"
    rows_box, token_box = page.locator(".rows").bounding_box(), token.bounding_box()
    assert rows_box["y"] <= token_box["y"] <= token_box["y"] + token_box["height"] <= rows_box["y"] + rows_box["height"]
    assert page.evaluate("scrollY") == 0
    # whoever turns to other tokens is not brought back
    page.locator(".side.row button").first.click()
    first = page.locator(".rows li").first
    assert int(first.get_attribute("data-place")) == row // 1000 * 1000 - 1000
    first.hover()
    text = f"from t{row // 1000 * 1000 - 1000}"
    wait.until(page, f"document.querySelector('.tokens .said').textContent === '{text}'")


def test_texts_run_their_way(window: Any, translator: Translator, wait: Any) -> None:
    hebrew = Translator(translator.model, CharTokenizer("אבגדה "), CharTokenizer("וזחטיכל"))
    explorer = Explorer([LoadedRun("hebrew", "translate", copy.deepcopy(hebrew))], text="אב ג7")
    with ExploreServer(explorer, port=0) as exploring:
        page = window.open(exploring.address)
        tokens, text = written(hebrew, "אב ג7")
        # the model has learnt nothing, and may write nothing, or no letter
        text = text or "The translation is empty."
        wait.ended(page, f"not known to this model, so the rest is a guess: 7{text}")
        assert page.locator(".read").get_attribute("dir") == "rtl"
        first, second = (page.locator(".read li").nth(index).bounding_box() for index in (0, 1))
        assert second["x"] < first["x"]
        assert page.locator(".written").get_attribute("dir") == Text(labels(hebrew.target_tokenizer, tokens)).direction
        # what stands around the translation stays in place
        assert page.locator(".status bdi").all_inner_texts() == ["7", text]
        # left to right again
        page.fill("#text", "77")
        wait.until(page, "document.querySelectorAll('.read li').length === 2")
        text = written(hebrew, "77")[1] or "The translation is empty."
        wait.ended(page, f"not known to this model, so the rest is a guess: 7{text}")
        assert page.locator(".read").get_attribute("dir") == "ltr"
        # while the server still answers what the page asks for
        window.check()


def test_an_answer_that_ends_early_is_no_translation(page: Any) -> None:
    started = 'data: {"kind": "start", "source": ["b"], "unknown": []}\n\n'
    page.route("**/api/translate", lambda route: route.fulfill(content_type="text/event-stream", body=started))
    page.fill("#text", "b")
    page.wait_for_selector(".status.wrong")
    assert page.locator(".status").inner_text() == "the server ended the answer early"
    assert page.locator("button", has_text="stop").is_hidden()


ENTER = """composing => document.querySelector("#text").dispatchEvent(
    new KeyboardEvent("keydown", { key: "Enter", isComposing: composing, bubbles: true, cancelable: true })
)"""


def test_enter_in_a_composed_word_translates_nothing(page: Any, window: Any, translator: Translator, wait: Any) -> None:
    request_count = len(window.requests)
    assert page.evaluate(ENTER, True)
    page.wait_for_timeout(300)
    assert not any("/api/translate" in address for address in window.requests[request_count:])
    # an event that is taken is told so to whoever sent it
    assert not page.evaluate(ENTER, False)
    page.wait_for_timeout(300)
    assert any("/api/translate" in address for address in window.requests[request_count:])
    wait.ended(page, written(translator, "abc")[1])
