"""A MkDocs hook that converts TeX equations between dollar signs, as GitHub reads them, to MathML for browsers."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

# The output of pymdownx.arithmatex for $…$ and $$…$$.
EQUATION = re.compile(r'(<(span|div) class="arithmatex">)\\[(\[](.+?)\\[)\]](</\2>)', re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with its equations as MathML."""
    return EQUATION.sub(
        lambda found: f"{found[1]}{mathml(unescape(found[3]), is_displayed=found[2] == 'div')}{found[4]}", html
    )


def mathml(tex: str, *, is_displayed: bool) -> str:
    """Return an equation in TeX as MathML.

    Raises:
        ValueError: it contains an unknown command.
    """
    # without \left and \right a bar is an operator, with space on both sides
    tex = tex.replace(r"\lvert", r"\left\lvert").replace(r"\rvert", r"\right\rvert")
    written = convert(tex.strip(), display="block" if is_displayed else "inline")
    if unknown := re.findall(r"\\\w+", unescape(written)):
        raise ValueError(f"no MathML for {', '.join(unknown)} in {tex.strip()}")
    return written
