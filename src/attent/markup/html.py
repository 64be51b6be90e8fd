"""HTML: lines to translate, and everything around them as it was.

Tags are read by Python's `html.parser`; each stays character by character. Elements of a line (b, a, span and the like) are nested; every
other tag ends a line. Within `code`, `pre`, `script`, `style` and whatever has `translate="no"` nothing is translated.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser

from attent.markup.inline import AlignedText, Element, note_spaces, place_tags
from attent.markup.placeholders import cut_placeholders

# Elements that stand within a line of text.
INLINE = frozenset(
    (
        *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i", "ins", "label", "mark"),
        *("q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u"),
    )
)
# Elements without content that stand within a line.
POINTS = frozenset(("br", "img", "wbr", "input"))
# Elements whose content is not translated.
VERBATIM_INLINE = frozenset(("code", "kbd", "samp", "var"))
VERBATIM = VERBATIM_INLINE | frozenset(["pre", "script", "style", "textarea", "svg", "math", "template", "noscript"])
VOID = frozenset(["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"])


@dataclass
class _Token:
    """A piece of the document: text, or a tag of a kind, with what stands there."""

    kind: str
    raw: str
    name: str = ""
    is_verbatim: bool = False


@dataclass
class MarkedText:
    """A document as lines to translate and what stands between them.

    Args:
        parts: strings that stay as they are, and lines.
    """

    parts: list[str | Element] = field(default_factory=list)

    @property
    def lines(self) -> list[Element]:
        """The lines, in order."""
        return [part for part in self.parts if isinstance(part, Element)]

    @property
    def texts(self) -> list[str]:
        """The texts to translate, in order."""
        return [line.text for line in self.lines]

    def render(self, translations: Sequence[AlignedText]) -> str:
        """Return the document with the translation of each text in its place."""
        remaining = iter(translations)
        return "".join(part if isinstance(part, str) else place_tags(part, next(remaining), escape) for part in self.parts)


def escape(text: str) -> str:
    """Write text between tags."""
    return html.escape(text, quote=False).replace("\u00a0", "&nbsp;")


def parse_html(text: str) -> MarkedText:
    """Cut HTML into lines to translate, and the rest.

    A tag that is never closed, or never opened, stands where it stood between words, as an empty one does.
    """
    tokens = _join_verbatim(_tokens(text))
    marked, line = MarkedText(), list[_Token]()
    for token in tokens:
        if token.kind == "block":
            _add_line(marked, line)
            line = []
            marked.parts.append(token.raw)
        else:
            line.append(token)
    _add_line(marked, line)
    return marked


class _Reader(HTMLParser):
    """Collects where tokens begin, and what they are."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self.tokens: list[tuple[int, _Token]] = []
        self.feed(text)
        self.close()

    def _add(self, kind: str, name: str = "", *, is_verbatim: bool = False) -> None:
        line, column = self.getpos()
        self.tokens.append((self._lines[line - 1] + column, _Token(kind, "", name, is_verbatim)))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        is_verbatim = tag in VERBATIM or any(name == "translate" and (value or "").lower() == "no" for name, value in attrs)
        kind = "point" if tag in POINTS else "open" if tag in INLINE or (is_verbatim and tag not in VOID) else "block"
        self._add(kind, tag, is_verbatim=is_verbatim)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("point" if tag in POINTS or tag in INLINE else "block", tag)

    def handle_endtag(self, tag: str) -> None:
        self._add("close" if tag in INLINE or tag in VERBATIM else "block", tag)

    def handle_data(self, data: str) -> None:
        self._add("text")

    def handle_entityref(self, name: str) -> None:
        self._add("text")

    def handle_charref(self, name: str) -> None:
        self._add("text")

    def handle_comment(self, data: str) -> None:
        self._add("point")

    def handle_decl(self, decl: str) -> None:
        self._add("block")

    def unknown_decl(self, data: str) -> None:
        self._add("block")

    def handle_pi(self, data: str) -> None:
        self._add("block")


def _tokens(text: str) -> list[_Token]:
    """Return the tokens of a document, each with its characters; together they are the document."""
    positioned = _Reader(text).tokens
    begins = [0, *(begin for begin, _ in positioned[1:]), len(text)]
    if not positioned:
        return [_Token("text", text)] if text else []
    for (_, token), begin, end in zip(positioned, begins, begins[1:], strict=False):
        token.raw = text[begin:end]
    tokens = list[_Token]()
    for _, token in positioned:
        # html.parser parts a text at its entities
        if tokens and token.kind == tokens[-1].kind == "text":
            tokens[-1].raw += token.raw
        else:
            tokens.append(token)
    return tokens


def _join_verbatim(tokens: Sequence[_Token]) -> list[_Token]:
    """Make one token of each element that is not translated, to its closing tag; of an unclosed one its tag alone."""
    result, number = list[_Token](), 0
    while number < len(tokens):
        token = tokens[number]
        end = _end_of(tokens, number) if token.is_verbatim else None
        if end is None:
            result.append(token)
            number += 1
            continue
        raw = "".join(part.raw for part in tokens[number : end + 1])
        is_block = token.name not in INLINE | VERBATIM_INLINE
        result.append(_Token("block" if is_block else "point", raw))
        number = end + 1
    return result


def _end_of(tokens: Sequence[_Token], begin: int) -> int | None:
    """Return the number of the closing tag of an element; None if there is none."""
    depth, name = 0, tokens[begin].name
    for number in range(begin, len(tokens)):
        if tokens[number].name == name:
            is_closing = tokens[number].raw.startswith("</")
            depth += -1 if is_closing else 0 if tokens[number].raw.endswith("/>") else 1
            if not depth:
                return number
    return None


def _add_line(marked: MarkedText, tokens: Sequence[_Token]) -> None:
    """Add a line, if it has something to translate."""
    line, open_elements = Element(), list[tuple[Element, str]]()
    current = line
    closed = _matching(tokens)
    for number, token in enumerate(tokens):
        if token.kind == "text":
            current.children += cut_placeholders(html.unescape(token.raw), escape)
        elif token.kind == "open" and number in closed:
            element = Element(token.raw, tokens[closed[number]].raw)
            current.children.append(element)
            open_elements.append((current, token.name))
            current = element
        elif token.kind == "close" and number in closed.values():
            current, _ = open_elements.pop()
        else:
            current.children.append(Element(token.raw))
    note_spaces(line)
    if any(map(str.isalnum, line.text)):
        marked.parts.append(line)
    else:
        marked.parts.append("".join(token.raw for token in tokens))


def _matching(tokens: Sequence[_Token]) -> dict[int, int]:
    """Return the number of the closing tag of each opening one that has one; tags that cross have none."""
    waiting, closed = list[int](), dict[int, int]()
    for number, token in enumerate(tokens):
        if token.kind == "open":
            waiting.append(number)
        elif token.kind == "close":
            names = [tokens[opening].name for opening in waiting]
            if token.name in names:
                index = len(names) - 1 - names[::-1].index(token.name)
                closed[waiting[index]] = number
                del waiting[index:]
    return closed
