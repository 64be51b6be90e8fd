"""The documentation as a site.

It can be built, its links lead somewhere, and an opened page asks nobody for anything.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from PIL import Image

from attent.views.palette import color

ROOT = Path(__file__).parents[2]

# What a browser fetches by itself when it meets the element; links that a person may follow are others.
FETCHED = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "iframe": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
    "object": ("data",),
    "use": ("href", "xlink:href"),
}
LINKS = {"stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "modulepreload", "manifest"}
ELSEWHERE = re.compile(r"^\s*(?:https?:)?//")
IN_STYLES = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])\s*((?:https?:)?//[^'\")]+)")


# Width and height of each equation, and where one that stands by itself begins and ends.
BOXES = """[...document.querySelectorAll("math")].map((equation) => {
  const box = equation.getBoundingClientRect();
  const parts = [...equation.children].map((part) => part.getBoundingClientRect());
  const [left, right] = [Math.min(...parts.map((part) => part.left)), Math.max(...parts.map((part) => part.right))];
  return [box.width, box.height, ...(equation.closest("table") ? [0, 0] : [left, right])];
})"""
# What is wider than the window and in no box that scrolls.
BEYOND = """[...document.querySelectorAll("article *, header *, footer *")].filter((part) => {
  const box = part.getBoundingClientRect();
  if (!box.width || !box.height || (box.right <= innerWidth + 1 && box.left >= -1)) return false;
  for (let outer = part.parentElement; outer !== document.body; outer = outer.parentElement)
    if (getComputedStyle(outer).overflowX !== "visible") return false;
  return true;
}).map((part) => part.outerHTML.slice(0, 80))"""
# The colors of the page; and the beginning, size, color and ground of each text, but for mathematics and drawings.
TEXTS = """(() => {
  const style = getComputedStyle(document.body), texts = [];
  const ground = (part) => {
    for (; part; part = part.parentElement) {
      const color = getComputedStyle(part).backgroundColor;
      if (!color.startsWith("rgba(")) return color;
    }
  };
  for (const part of document.querySelectorAll("body *")) {
    const own = [...part.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("");
    if (!own || part.closest("math, svg, sup, sub, script, style, .headerlink") || !part.checkVisibility()) continue;
    const { fontSize, color } = getComputedStyle(part);
    texts.push([own.slice(0, 40), parseFloat(fontSize), color, ground(part)]);
  }
  return [[style.backgroundColor, style.color], texts];
})()"""
# Characters of each line of prose that another line follows.
LINES = """[...document.querySelectorAll("article > p, article > ul > li")].flatMap((part) => {
  const counts = new Map(), range = document.createRange();
  const texts = document.createTreeWalker(part, NodeFilter.SHOW_TEXT);
  if (part.querySelector("math")) return [];
  while (texts.nextNode())
    for (let place = 0; place < texts.currentNode.length; place++) {
      range.setStart(texts.currentNode, place);
      range.setEnd(texts.currentNode, place + 1);
      const { top, height, width } = range.getBoundingClientRect();
      const line = Math.round((top + height / 2) / 14);
      if (width) counts.set(line, (counts.get(line) ?? 0) + 1);
    }
  return [...counts.values()].slice(0, -1);
})"""
TEX = re.compile(r'class="arithmatex">\s*\\[(\[]|\$\$')


both_schemes = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])


class Fetches(HTMLParser):
    """The addresses that a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        inputs = {name: value or "" for name, value in attrs}
        if tag == "link" and LINKS & set(inputs.get("rel", "").split()):
            self.found.append(inputs.get("href", ""))
        self.found += [inputs[name] for name in FETCHED.get(tag, ()) if name in inputs]


def fetched(page: str) -> list[str]:
    parser = Fetches()
    parser.feed(page)
    return parser.found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_built_and_those_of_the_course_offer_their_notebooks(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert not [str(page) for page in pages if not (site / page).is_file()]
    names = [path.stem for path in (ROOT / "docs" / "learn").glob("*.md")]
    assert names
    for name in names:
        assert (site / "learn" / f"{name}.ipynb").is_file()
        assert f'href="{name}.ipynb"' in (site / "learn" / f"{name}.html").read_text(encoding="utf-8")


def test_an_opened_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    for page in pages:
        written = page.read_text(encoding="utf-8")
        own = fetched(written)
        # what would make the theme's script fetch another from elsewhere
        assert 'class="mermaid"' not in written
        # pages of attention hold their styles themselves
        assert page.parent.name in ("gallery", "figures") or any(address.endswith(".css") for address in own)
        assert not [address for address in own if ELSEWHERE.match(address)], page
    for style in sorted(site.rglob("*.css")):
        assert not IN_STYLES.findall(style.read_text(encoding="utf-8")), style


def test_pictures_bring_their_background() -> None:
    """Dark lines on nothing could not be read on a dark page."""
    pictures = sorted((ROOT / "docs").rglob("*.png"))
    assert pictures
    assert not [path for path in pictures if any(Image.open(path).convert("RGBA").getchannel("A").histogram()[:255])]


def hexadecimal(style: str) -> str:
    """A color as a browser computes it, rgb(1, 2, 3), as #RRGGBB."""
    return "#" + "".join(f"{int(channel):02X}" for channel in re.findall(r"\d+", style)[:3])


def contrast(first: str, second: str) -> float:
    """WCAG 2.2, contrast ratio."""
    channels = ([int(name[index : index + 2], 16) / 255 for index in (1, 3, 5)] for name in (first, second))
    linear = ([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color] for color in channels)
    dim, bright = sorted(0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in linear)
    return (bright + 0.05) / (dim + 0.05)


def search(opened: Any, words: str) -> list[str]:
    """The addresses that a page's own search finds."""
    opened.click(".md-search__form input")
    opened.keyboard.type(words)
    opened.wait_for_selector(".md-search-result__item a", timeout=60_000)
    return [link.get_attribute("href") for link in opened.query_selector_all(".md-search-result__item a")]


@pytest.mark.slow
def test_the_search_works_from_disk_for_options_and_settings_too(site: Path, window: Any) -> None:
    opened = window.open(site / "index.html")
    assert "reference/settings.html#TrainingSettings" in "".join(search(opened, "plateau_factor"))
    opened = window.open(site / "learn" / "heads.html")
    results = search(opened, "Bahdanau")
    assert any(address.endswith("learn/recurrent.html") or "learn/recurrent.html#" in address for address in results)
    opened.goto(results[0])
    assert "Bahdanau" in opened.inner_text("article")
    window.check()


@pytest.mark.slow
def test_pages_and_their_equations_fit_a_phone(site: Path, window: Any) -> None:
    # 404.html is for a server, at its root
    pages = [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]
    with_equations = {page for page in pages if "<math " in page.read_text(encoding="utf-8")}
    assert {"formula.html", "scores.html", "heads.html"} <= {page.name for page in with_equations}
    opened = window.open(site / "index.html", size=(390, 844))
    for page in pages:
        opened.goto(page.as_uri())
        for scheme in ("dark", "light"):
            opened.emulate_media(color_scheme=scheme)
            assert opened.evaluate("document.documentElement.scrollWidth") <= 390, page
            assert not opened.evaluate(BEYOND), page
            boxes = opened.evaluate(BOXES) if page in with_equations else []
            assert all(width > 0 and height > 4 for width, height, _, _ in boxes), page
            # tables are moved sideways, displayed equations need not be
            assert all(left >= 0 and right <= 390 for _, _, left, right in boxes), page
    window.check()


@pytest.mark.slow
@both_schemes
def test_pictures_of_a_phone(site: Path, window: Any, dark: bool) -> None:
    opened, scheme = window.open(site / "index.html", size=(390, 844), dark=dark), "dark" if dark else "light"
    window.picture(opened, f"site-narrow-{scheme}")
    opened.goto(f"{(site / 'learn' / 'scores.html').as_uri()}#scaled-dot-product")
    window.picture(opened, f"site-equations-{scheme}")
    assert opened.evaluate(BOXES)
    window.check()


@pytest.mark.slow
@both_schemes
def test_text_is_legible_in_the_colors_of_the_design(site: Path, window: Any, dark: bool) -> None:
    opened = window.open(site / "index.html", dark=dark)
    for name in ("index", "learn/recurrent", "learn/scores", "learn/heads", "formula", "reference/settings"):
        opened.goto((site / f"{name}.html").as_uri())
        (paper, ink), texts = opened.evaluate(TEXTS)
        assert (hexadecimal(paper), hexadecimal(ink)) == (color("paper", dark=dark), color("ink", dark=dark))
        assert len(texts) > 50
        for text, size, front, back in texts:
            assert contrast(hexadecimal(front), hexadecimal(back)) >= 4.5, (name, text)
            assert size >= 14, (name, text)
    window.check()


@pytest.mark.slow
def test_the_first_page_shows_the_sentence_beside_its_attention_then_three_doors(site: Path, window: Any) -> None:
    opened = window.open(site / "index.html")
    left, right = (opened.locator(".first > div").nth(index).bounding_box() for index in (0, 1))
    # 5 : 7, without the gap
    assert left["width"] / right["width"] == pytest.approx(5 / 7, abs=0.01) and left["x"] < right["x"]
    picture = window.open(site / "index.html", java_script_enabled=False).locator(".first svg")
    assert " ".join(picture.locator(".word").all_text_contents()) == "the black dog sings le chien noir chante"
    assert picture.get_attribute("aria-label").startswith('The sentence "the black dog sings"')
    words = opened.locator(".first .playground .list li")
    words.last.wait_for(timeout=120_000)
    assert " ".join(words.all_text_contents()) == "the black dog sings le chien noir chante"
    opened.click(".first .train")
    opened.locator(".first .status").filter(has_text="loss").wait_for(timeout=120_000)
    doors = [opened.locator(".doors > div").nth(index) for index in range(3)]
    assert [door.locator("h2 a:not(.headerlink)").inner_text() for door in doors] == [
        "Learn",
        "See your model",
        "Train",
    ]
    # at once: the page above them grows while it trains
    tops = "doors => doors.map(door => door.getBoundingClientRect().top)"
    assert len(set(opened.locator(".doors > div").evaluate_all(tops))) == 1
    last = doors[-1].bounding_box()
    assert last["y"] + last["height"] <= 800
    assert opened.locator("pre").first.bounding_box()["y"] > last["y"] + last["height"]
    opened.set_viewport_size({"width": 390, "height": 844})
    assert len({opened.locator(".first > div").nth(index).bounding_box()["x"] for index in (0, 1)}) == 1
    window.check()


@pytest.mark.slow
def test_a_page_of_the_course_says_where_the_reader_is(site: Path, window: Any) -> None:
    opened = window.open(site / "learn" / "scores.html")
    assert opened.inner_text(".place").strip() == "page 3 of 11, 9 minutes"
    assert opened.locator(".md-nav--primary > ul > li > .md-nav__link--active:visible").inner_text() == "3 Scores"
    hidden = [label for label in ("Translate your own pairs", "Design") if opened.get_by_text(label).first.is_visible()]
    assert not hidden, "other sections are closed"
    assert 40 < max(opened.evaluate(LINES)) <= 68
    opened.set_viewport_size({"width": 390, "height": 844})
    links = opened.locator(".md-footer__link")
    assert [link.inner_text().split("\n")[-1] for link in links.all()] == [
        "2 Queries, keys and values",
        "4 Normalizers",
    ]
    assert all(link.bounding_box()["width"] <= 195 for link in links.all())
    window.check()


@pytest.mark.slow
def test_pages_show_their_live_figures_below_the_still_content_which_is_there_without_scripts(
    site: Path, window: Any
) -> None:
    opened, without_scripts = (
        window.open(site / "index.html"),
        window.open(site / "index.html", java_script_enabled=False),
    )
    text = (ROOT / "docs" / "design-pages.md").read_text(encoding="utf-8")
    figures = re.findall(r"^\| `(figure-\w+)` \| (\S+)\.md \|", text, re.M)
    assert len(figures) == 14
    for name, page in figures:
        for view in (opened, without_scripts):
            view.goto((site / f"{page}.html").as_uri())
        assert (
            without_scripts.locator(f"#{name} :is(pre, img, table)").first.is_visible()
            and not without_scripts.locator(".live").count()
        )
        content, live = (
            opened.locator(f"#{name} {part}").first.bounding_box() for part in (":is(pre, img, table)", ".live")
        )
        assert live["y"] >= content["y"] + content["height"] and live["height"] > 150
        assert opened.locator(f"#{name} .sum").inner_text()
        assert not window.serious_faults(opened), page
        opened.emulate_media(media="print")
        assert (
            not opened.locator(f"#{name} .live").is_visible()
            and opened.locator(f"#{name} :is(pre, img, table)").first.is_visible()
        )
        opened.emulate_media(media="screen")
    without_scripts.context.close()
    window.check()


@pytest.mark.slow
def test_tables_show_equations_and_a_link_to_the_file_on_a_phone(site: Path, window: Any) -> None:
    opened = window.open(site / "learn" / "scores.html", size=(390, 844))
    rows = opened.locator("table:has(td.file) tbody tr").all()
    assert len(rows) == 9
    for row in rows:
        assert not row.locator("td.file").is_visible()
        equation = row.locator("math").bounding_box()
        assert equation["x"] >= 0 and equation["x"] + equation["width"] <= 390
    rows[1].get_by_role("link", name="file").click()
    opened.wait_for_url("**/source/attention/scores/scaled_dot.html")
    assert "class ScaledDot" in opened.inner_text("pre")
    window.check()


def test_the_style_sheet_has_no_color_of_its_own(site: Path) -> None:
    own = (site / "figures" / "site.css").read_text(encoding="utf-8")
    assert not re.findall(r"#[0-9a-fA-F]{3,8}\b|\b(?:rgb|hsl|oklch)a?\(", own)
    tokens = ROOT / "src" / "attent" / "views" / "web" / "tokens.css"
    assert (site / "figures" / "tokens.css").read_bytes() == tokens.read_bytes()
    assert set(re.findall(r"var\(--(?!md-)([\w-]+)", own)) <= set(re.findall(r"--([\w-]+):", tokens.read_text("utf-8")))


def test_equations_become_mathml(site: Path) -> None:
    """None is left in TeX, and code that has dollars stays code."""
    page = (site / "learn" / "scores.html").read_text(encoding="utf-8")
    assert "<msqrt>" in page
    for built in site.rglob("*.html"):
        assert not TEX.search(built.read_text(encoding="utf-8")), built


def test_an_equation_that_has_no_mathml_is_an_error() -> None:
    hook = runpy.run_path(str(ROOT / "scripts" / "site_equations.py"))
    page = hook["on_page_content"]('<p>a <span class="arithmatex">\\(q^2 &lt; 3\\)</span></p>')
    assert re.search(r'<span class="arithmatex"><math .*<msup><mi>q</mi><mn>2</mn></msup><mo>&#x0003C;</mo>', page)
    with pytest.raises(ValueError, match=r"no MathML for .nothing"):
        hook["on_page_content"]('<div class="arithmatex">\\[\\nothing{q}\\]</div>')


def test_links_out_of_the_site_become_names_and_lead_somewhere() -> None:
    hook = runpy.run_path(str(ROOT / "scripts" / "site_links.py"))
    inside = "[names](names.md), ![figure](figures/scaling.svg) and [scores](../docs/names.md)"
    for written, text in {
        "[configs/dates.toml](../configs/dates.toml)": "`configs/dates.toml`",
        "[the recipe](../configs/dates.toml#l1)": "the recipe (`configs/dates.toml`)",
        "[`layers/embeddings.py`](../src/attent/layers/embeddings.py)": "`src/attent/layers/embeddings.py`",
        inside: inside,
    }.items():
        assert hook["without_links"](written, PurePosixPath("docs/page.md")) == text
    with pytest.raises(FileNotFoundError, match=r"missing\.toml"):
        hook["without_links"]("[a](../missing.toml)", PurePosixPath("docs/page.md"))


def test_tables_of_files_get_links_in_their_first_column() -> None:
    hook = runpy.run_path(str(ROOT / "scripts" / "site_source.py"))
    assert hook["source"]("scores/dot.py") == "src/attent/attention/scores/dot.py"
    assert hook["source"]("layers/residual.py") == hook["source"]("src/attent/layers/residual.py")
    assert hook["source"]("scripts/names.py") is hook["source"]("scores/missing.py") is None
    link = '<a class="source" href="a.html"><code>a.py</code></a>'
    head = "<tr><th>step</th><th>equation</th><th>file</th><th>in</th></tr>"
    rows = ("1", "x", link, "y"), ("2", "z", "same file", "")
    body = ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows]
    changed = hook["with_links"](f"<table>{head}{''.join(body)}</table>")
    assert changed.count('<a class="file" href="a.html">file</a></td>') == 2
    assert f'<td class="file">{link}</td><td data-head="in">y</td>' in changed and "<td>x</td>" in changed
    first = "<table><tr><th>file</th><th>contents</th></tr><tr><td>config.json</td><td>x</td></tr></table>"
    assert hook["with_links"](first) == first
