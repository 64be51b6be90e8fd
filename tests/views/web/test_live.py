"""The page of a run whose model computes in the browser, against Python's computation of the same run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _live_page import cell, ended, select_head, set_normalizer, shown, until, weights_of, written

import attent
from attent.tasks.loading import load
from attent.tasks.text_generation.stepwise import StepwiseGeneration

pytestmark = pytest.mark.slow

NARROW = (390, 844)
SIZES = pytest.mark.parametrize(("size", "dark"), [((1280, 800), False), (NARROW, True)], ids=["wide", "narrow"])
CROSS = "decoder.layers.0.cross_attention"
NORMALIZED = {
    "softmax": ": the softmax of the scores of its row",
    "hard": ": 1 for the largest score of its row, 0 for all others",
    "sigmoid": ": the sigmoid of the score alone: a row does not sum to 1",
    "top_k": ": the softmax of the two largest scores of its row, 0 for all others",
    "sparsemax": ": the sparsemax of the scores of its row",
}
DIGITS = '[images]\nsource = "digits"\npatch = 4\n'


@pytest.fixture(scope="module")
def run(translating: Any) -> Path:
    return translating("transformer")


@pytest.fixture(scope="module")
def file(run: Path, live: Any) -> Path:
    return live(run, ["bad cab"])


@pytest.fixture
def translator(run: Path) -> Any:
    return load(run)


@SIZES
def test_what_is_typed_is_translated_as_python_does(
    file: Path, translator: Any, window: Any, size: tuple[int, int], dark: bool
) -> None:
    page = window.open(file, size=size, dark=dark)
    # the first example at once
    ended(page, written(translator, "bad cab")[0])
    for text in ("a", "dead bed", "abcdeabcdeabcde"):
        page.fill("#text", text)
        ended(page, written(translator, text)[0])
        assert page.locator(".read bdi").all_inner_texts() == [*text.replace(" ", "␣")]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # a text that is gone leaves nothing
    page.fill("#text", "")
    until(page, lambda: not shown(page) and not page.locator(".view > *").count(), "nothing")
    page.fill("#text", "abz")
    notice = page.locator(".notice")
    until(page, notice.count, "an unknown character")
    assert notice.inner_text() == "not known to this model, so the rest is a guess: z"
    assert page.locator(".read .unknown").all_inner_texts() == ["z"]
    window.picture(page, f"live-{size[0]}", whole=True)
    assert window.requests == [file.as_uri()]


def test_a_recurrent_translator(translating: Any, live: Any, window: Any) -> None:
    folder = translating("rnn")
    page = window.open(live(folder, ["abc", "dead bed"]))
    translator = load(folder)
    ended(page, written(translator, "abc")[0])
    weights = weights_of(translator, "abc")[0]
    assert cell(page, 1, 2) == pytest.approx(weights[1, 2].item(), abs=1e-4)
    page.click("text=another example")
    ended(page, written(translator, "dead bed")[0])


def test_a_translator_without_attention(translating: Any, live: Any, window: Any) -> None:
    folder = translating("rnn", attention="none")
    page = window.open(live(folder, ["abc"]))
    pieces = written(load(folder), "abc")[0]
    until(page, lambda: shown(page) == pieces and not page.locator(".former").count(), "a translation")
    assert "It has no attention." in page.inner_text("main")
    assert not page.locator(".wrong, .formula, .view > *").count()


def test_a_token_is_replaced_and_the_rest_is_rewritten(file: Path, translator: Any, window: Any) -> None:
    page = window.open(file)
    pieces, tokens = written(translator, "bad cab")
    ended(page, pieces)
    page.locator(".written button").nth(1).click()
    offers = page.locator(".offers button bdi").all_inner_texts()
    page.locator(".offers button").nth(1).click()
    changed = (tokens[0], translator.target_tokenizer.encode(offers[1])[0])
    assert changed[1] != tokens[1]
    rewritten, ids = written(translator, "bad cab", changed)
    ended(page, rewritten)
    assert page.locator(".written .forced").count() == 2
    places = [index for index, token in enumerate(ids) if token != (tokens + [None] * 99)[index]]
    underlined = page.evaluate(
        "[...document.querySelectorAll('.written li')].flatMap((li, i) => li.classList.contains('changed') ? [i] : [])"
    )
    assert [index for index in underlined if index < len(ids)] == places
    # and from here on with what is typed
    page.locator(".written button").nth(0).focus()
    page.keyboard.press("Enter")
    page.fill(".instead input", "<2")
    page.keyboard.press("Enter")
    ended(page, written(translator, "bad cab", tuple(translator.target_tokenizer.encode("<2")))[0])


def test_a_head_that_is_switched_off_changes_the_maps_as_in_python(file: Path, translator: Any, window: Any) -> None:
    page = window.open(file)
    ended(page, written(translator, "bad cab")[0])
    select_head(page, 0, 1)
    page.keyboard.press("x")
    with attent.intervene(translator.model, {CROSS: {1: "zero"}}):
        pieces, weights = written(translator, "bad cab")[0], weights_of(translator, "bad cab")[0]
    ended(page, pieces)
    until(page, lambda: "(without 1 head)" in page.inner_text(".run .status"), "a head less")
    assert page.locator(".head.off").count() == 1
    for hidden, canvas in ((".head.off", ".head.off canvas"), (".zoom .frame", ".zoom .frame canvas")):
        assert page.locator(hidden).evaluate("(node) => getComputedStyle(node, '::after').content") == '"off"'
        assert page.locator(canvas).evaluate("(node) => getComputedStyle(node).opacity") == "0"
    # nothing of it is drawn or said
    for said in (".answer .readout", ".zoom .readout"):
        until(page, lambda said=said: page.inner_text(said) == "head 1 is off", said)
    assert page.locator(".sum").is_hidden()
    assert page.locator(".answer .links path, .read .strongest").count() == 0
    assert page.locator(".read li").evaluate_all("(items) => items.every((item) => !item.style.background)")
    select_head(page, 1, 0)
    until(page, lambda: page.inner_text(".answer .readout").endswith(" (head 0)"), "another head")
    for row, column in ((0, 3), (2, 1), (1, 6)):
        assert cell(page, row, column) == pytest.approx(weights[row, column].item(), abs=1e-4)
    select_head(page, 0, 1)
    page.click("text=switch on head 1")
    ended(page, written(translator, "bad cab")[0])
    assert not page.locator(".head.off").count()
    # nor is anything of the attention of one text
    page.click("text=encoder self-attention")
    select_head(page, 0, 0)
    until(page, lambda: page.locator(".tokens .links path").count() > 0, "links")
    page.click("text=switch off head 0")
    until(page, lambda: page.inner_text(".tokens .readout") == "head 0 is off", "a head less")
    assert page.locator(".tokens .links path").count() == 0
    assert page.locator(".tokens li[aria-selected='true']").count() == 1


def test_the_formula_is_changed_in_every_attention(file: Path, translator: Any, window: Any) -> None:
    page = window.open(file)
    pieces = written(translator, "bad cab")[0]
    ended(page, pieces)
    page.get_by_label("weights are the").select_option("sparsemax")
    # what the mask acts on is named
    assert page.get_by_label("in self-attention, each reads").is_visible()
    set_normalizer(translator.model, "sparsemax")
    ended(page, written(translator, "bad cab")[0])
    select_head(page, 1, 1)
    weights = weights_of(translator, "bad cab")[1]
    for row, column in ((0, 0), (1, 4)):
        assert cell(page, row, column) == pytest.approx(weights[row, column].item(), abs=1e-4)
    page.locator(".sum", has_text=": the sparsemax of the scores of its row").wait_for()
    assert page.locator(".zoom .legend span").all_inner_texts() == ["0", "1"]
    page.get_by_label("weights are the").select_option("identity")
    set_normalizer(translator.model, "identity")
    ended(page, written(translator, "bad cab")[0])
    page.locator(".sum", has_text=": the score itself, which is no weight: it can be negative").wait_for()
    numbers = weights_of(translator, "bad cab")[1]
    row, column = divmod(int(numbers.argmin()), numbers.shape[-1])
    assert numbers.min() < 0
    assert cell(page, row, column) == pytest.approx(numbers.min().item(), abs=1e-3)
    assert page.locator(".zoom .legend span").all_inner_texts()[1].startswith("±")
    page.click(".further summary")
    assert "A number is the score itself, no weight; dark is large, with either sign." in page.inner_text(".further")
    for name, meaning in NORMALIZED.items():
        page.get_by_label("weights are the").select_option(name)
        page.locator(".sum", has_text=meaning).wait_for()
    page.get_by_label("temperature").focus()
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    until(page, lambda: page.inner_text(".formula output") == "8", "a temperature of 8")
    page.wait_for_timeout(300)
    # flatter scores leave more keys
    until(page, lambda: not page.locator(".former").count(), "the view")
    assert cell(page, 1, 4) != pytest.approx(weights[1, 4].item(), abs=1e-3)
    page.click("text=as trained")
    ended(page, pieces)
    assert page.get_by_label("weights are the").input_value() == "softmax"
    assert page.locator("text=as trained").is_hidden()


def test_a_weight_is_written_out(file: Path, translator: Any, window: Any) -> None:
    page = window.open(file)
    pieces = written(translator, "bad cab")[0]
    ended(page, pieces)
    assert "Select one head" in page.inner_text(".sum")
    assert re.search(r"^to .* [\d.]+ \(mean of 2 heads\)$", page.inner_text(".answer .readout"))
    select_head(page, 1, 1)
    weight = cell(page, 2, 4)
    weights = weights_of(translator, "bad cab")[1, 2]
    until(page, lambda: page.inner_text(".answer .readout").endswith(" (head 1)"), "the name of the head")
    reads, number, alpha, score = page.locator(".sum output p").all_inner_texts()
    # the terms of the context are the largest weights, the largest first
    named = [float(term) for term in re.findall(r"([\d.]+) v\(", reads)]
    assert named == pytest.approx(sorted(weights.tolist(), reverse=True)[: len(named)], abs=6e-3)
    first, second = (float(part) for part in re.search(r"= ([\d.]+) / ([\d.]+) = ", alpha).groups())
    assert first / second == pytest.approx(weight, abs=1e-2)
    assert alpha.startswith(f"α of {pieces[2]} → ␣") or alpha.startswith(f"α of {pieces[2]} → c")
    value = lambda text: float(text.replace("−", "-"))  # noqa: E731
    products = re.findall(r"(\(?−?[\d.e−]+\)?)·(\(?−?[\d.e−]+\)?)", number)
    total = sum(value(left.strip("()")) * value(right.strip("()")) for left, right in products)
    # all seven terms but the smallest
    assert total == pytest.approx(value(number.split(" = ")[-1]), abs=0.1)
    assert re.match(r"score of .* = 0\.35 · \(.*\) = −?[\d.]+$", score)
    select_head(page, 1, 0)
    assert page.inner_text(".sum output p:nth-child(3)") != alpha
    page.click("text=encoder self-attention")
    until(page, lambda: page.inner_text(".tokens .readout").endswith(" (head 0)"), "the name of the head")


@pytest.fixture(scope="module")
def digits(trained: Any) -> Path:
    pytest.importorskip("sklearn", reason="scikit-learn is missing")
    return trained("classify", DIGITS)


def classes(page: Any) -> dict[str, float]:
    names = page.locator(".guesses bdi").all_inner_texts()
    return dict(
        zip(names, (float(text[:-2]) / 100 for text in page.locator(".guesses li span").all_inner_texts()), strict=True)
    )


def check_classes(page: Any, classifier: Any, data: Any) -> None:
    (prediction,) = classifier.classify(data, best=5)
    expected = dict(zip(prediction.labels, prediction.probabilities, strict=True))
    until(page, lambda: classes(page) == pytest.approx(expected, abs=3e-3), f"{expected}")


def test_digits_are_drawn_or_chosen(digits: Path, live: Any, window: Any) -> None:
    from attent.tasks.classification.pictures import load_digits

    classifier = load(digits)
    file = live(digits)
    page = window.open(file)
    pixels = load_digits().pixels
    check_classes(page, classifier, pixels[:1])
    page.click("button[aria-label='example 4']")
    check_classes(page, classifier, pixels[3:4])
    page.wait_for_selector(".picture > canvas")
    page.click("text=clear")
    check_classes(page, classifier, np.zeros((1, 8, 8), np.uint8))
    box = page.locator(".input > canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.1)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.45, box["y"] + box["height"] * 0.9, steps=9)
    page.mouse.up()
    drawn = """() => { const canvas = document.querySelector('.input > canvas');
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return [...data].filter((_, place) => place % 4 === 0); }"""
    large = np.array(page.evaluate(drawn)).reshape(8, 30, 8, 30).mean((1, 3))
    assert large.max() > 200
    check_classes(page, classifier, large.astype(np.uint8)[None])
    window.picture(page, "live-digits", whole=True)
    # by the keyboard too
    page.click("text=clear")
    page.locator(".input > canvas").focus()
    for key in ("ArrowDown", "ArrowRight", " ", "ArrowDown", " "):
        page.keyboard.press(key)
    keyed = np.zeros((1, 8, 8), np.uint8)
    keyed[0, 1:3, 1] = 255
    check_classes(page, classifier, keyed)
    assert "Row 3, column 2" in page.inner_text(".input")
    assert window.requests == [file.as_uri()]


def test_a_picture_is_described(pictured: Path, live: Any, window: Any) -> None:
    captioner = load(pictured)
    pictures = [str(pictured.parent / "pictures" / f"{number}.png") for number in (0, 1)]
    page = window.open(live(pictured, pictures))
    for number, picture in enumerate(pictures):
        page.click(f"button[aria-label='example {number + 1}']")
        (caption,) = captioner.caption(picture)
        ended(page, [*caption.split(), "</s>"])
        until(page, lambda caption=caption: page.inner_text(".run .status") == caption, caption)
    weights = captioner.map(pictures[1])["decoder.layers.0.cross_attention"].weights
    select_head(page, 0, 1)
    assert cell(page, 1, 3) == pytest.approx(weights[0, 1, 1, 3].item(), abs=5e-3)
    assert page.locator(".picture > canvas").is_visible()


def test_a_text_is_continued(trained: Any, live: Any, window: Any) -> None:
    folder = trained("text-generation", '[lines]\ntrain = "{folder}/train.txt"\ntokenizer = "word"')
    generator = load(folder)
    page = window.open(live(folder, ["the dog"]))
    generation = StepwiseGeneration(generator, "the dog", max_new_tokens=24)
    pieces = [step.chosen.piece.strip() for step in generation]
    until(page, lambda: shown(page) == pieces, f"{pieces}")
    until(page, lambda: page.inner_text(".run .status") == "the dog" + generation.continuation, "the text")
    assert page.locator(".read bdi").all_inner_texts() == ["<s>", "the", "dog"]
    page.get_by_label("words at most").fill("2")
    until(page, lambda: shown(page) == pieces[:2], "two words")
    page.fill("#text", "the zebra")
    until(page, lambda: "zebra" in page.inner_text(".run .status") and not shown(page), "a word that is not known")


def test_blanks_and_classes_of_texts(trained: Any, live: Any, window: Any) -> None:
    folder = trained("fill-mask", '[lines]\ntrain = "{folder}/train.txt"\ntokenizer = "word"')
    text = "the _____ was happy ."
    page = window.open(live(folder, [text]))
    (blank,) = load(folder).fill(text)
    expected = {guess.word: guess.probability for guess in blank.guesses}
    until(page, lambda: classes(page) == pytest.approx(expected, abs=3e-3), f"{expected}")
    assert page.inner_text(".guesses h3") == "blank 1"
    folder = trained("classify", '[labelled]\ntrain = "{folder}/a.tsv"\ntokenizer = "word"')
    page = window.open(live(folder, ["the dog was happy"]))
    check_classes(page, load(folder), ["the dog was happy"])
    assert page.locator(".rows li").count() == 5
    page.fill("#text", "the <b>dog</b> slept .")
    check_classes(page, load(folder), ["the <b>dog</b> slept ."])


def test_vocabulary_title_and_address_are_text(trained: Any, live: Any, window: Any, tmp_path: Path) -> None:
    hostile = "<img/src=x/onerror=document.title='hacked'> </script><script>document.title='hacked'</script> slept"
    corpus = tmp_path / "hostile.txt"
    corpus.write_text("".join(f"{hostile} {number}\n" for number in range(20)), encoding="utf-8")
    folder = trained("text-generation", f'[lines]\ntrain = "{corpus}"\ntokenizer = "word"')
    folder = folder.rename(folder.parent / "a<script>document.title='x'<script>")
    file = live(folder, [hostile.split()[0]])
    page = window.open(f"{file.as_uri()}#group=<img src=x onerror=document.title='hacked'>&layer=9&row=<b>")
    until(page, lambda: len(shown(page)) > 1, "a continuation")
    assert "".join(page.locator(".read bdi").all_inner_texts()[1:]).replace("␣", "") == hostile.split()[0]
    assert page.inner_text(".run .status").startswith(hostile.split()[0])
    assert page.locator("img").count() == page.locator(".written script").count() == 0
    assert page.title() == page.inner_text("h1") == folder.name


def test_all_of_it_by_the_keyboard(file: Path, translator: Any, window: Any) -> None:
    page = window.open(file)
    ended(page, written(translator, "bad cab")[0])
    page.locator("#text").focus()
    page.keyboard.press("End")
    page.keyboard.type(" bed")
    ended(page, written(translator, "bad cab bed")[0])
    reached: list[str] = []
    for _ in range(14):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("(e => e.tagName + ':' + (e.getAttribute('role') || e.type || ''))(document.activeElement)")
        )
    for part in (
        "BUTTON:button",
        "SELECT:select-one",
        "INPUT:range",
        "CANVAS:application",
        "BUTTON:gridcell",
        "SUMMARY:",
    ):
        assert part in reached, reached
    page.locator(".written button[tabindex='0']").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    until(page, lambda: page.locator(".written .forced").count() == 2, "a token that was replaced")
    until(page, lambda: page.evaluate("document.activeElement.parentElement.matches('.forced')"), "the focus stays")


@SIZES
def test_axe_core_finds_nothing_serious(
    file: Path, digits: Path, live: Any, translator: Any, window: Any, size: tuple[int, int], dark: bool
) -> None:
    page = window.open(file, size=size, dark=dark)
    ended(page, written(translator, "bad cab")[0])
    page.click("summary")
    page.locator(".written button").first.click()
    assert window.serious_faults(page) == []
    page = window.open(live(digits), size=size, dark=dark)
    page.wait_for_selector(".picture > canvas")
    page.wait_for_selector(".head canvas")
    assert window.serious_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_without_javascript_a_sentence_says_what_it_is(file: Path, window: Any) -> None:
    page = window.open(file, java_script_enabled=False)
    assert "This page holds the model run" in page.inner_text("main")


def test_a_page_that_is_damaged_says_so(file: Path, window: Any, tmp_path: Path) -> None:
    damaged = tmp_path / "page.html"
    damaged.write_text(
        file.read_text(encoding="utf-8").replace('data-pack="weights"', 'data-pack="other"'), encoding="utf-8"
    )
    page = window.open(damaged)
    page.locator(".status.wrong", has_text="the page is damaged").wait_for()


def test_it_is_seen_and_answers_soon(file: Path, translator: Any, window: Any) -> None:
    page = window.open(file)
    ended(page, written(translator, "bad cab")[0])
    # benchmarks/live_speed.py measures it; here other tests may have the processor
    assert page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") < 2000
    took = page.evaluate("""() => new Promise((resolve) => {
        const field = document.querySelector('#text');
        const last = () => document.querySelector('.run .status').textContent;
        field.value = 'dead';
        const begin = performance.now();
        field.dispatchEvent(new Event('input', { bubbles: true }));
        const look = () => (last() && !last().includes('…') ? resolve(performance.now() - begin) : setTimeout(look, 1));
        setTimeout(look, 1);
    })""")
    assert took < 1000
