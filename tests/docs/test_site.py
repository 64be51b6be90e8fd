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
TEX = re.compile(r'class="arithmatex">\s*\\[(\[]|\$\$')


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
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_fit_a_phone(site: Path, window: Any, dark: bool) -> None:
    opened = window.open(site / "index.html", size=(390, 844), dark=dark)
    assert opened.evaluate("document.body.dataset.mdColorScheme") == ("slate" if dark else "default")
    window.picture(opened, f"site-narrow-{'dark' if dark else 'light'}")
    # 404.html is for a server, at its root
    for page in sorted(site.rglob("*.html")):
        if page.name != "404.html":
            opened.goto(page.as_uri())
            assert opened.evaluate("document.documentElement.scrollWidth") <= 390, page
    window.check()


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_equations_are_drawn_on_a_phone(site: Path, window: Any, dark: bool) -> None:
    pages = [page for page in sorted(site.rglob("*.html")) if "<math " in page.read_text(encoding="utf-8")]
    assert {"formula.html", "scores.html", "heads.html"} <= {page.name for page in pages}
    opened = window.open(site / "index.html", size=(390, 844), dark=dark)
    for page in pages:
        opened.goto(page.as_uri())
        boxes = opened.evaluate(BOXES)
        assert all(width > 0 and height > 4 for width, height, _, _ in boxes), page
        # tables are moved sideways, displayed equations need not be
        assert all(left >= 0 and right <= 390 for _, _, left, right in boxes), page
    opened.goto(f"{(site / 'learn' / 'scores.html').as_uri()}#scaled-dot-product")
    window.picture(opened, f"site-equations-{'dark' if dark else 'light'}")
    window.check()


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
