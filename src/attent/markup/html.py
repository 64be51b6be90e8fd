"""HTML: lines to translate, and everything around them as it was.

Tags are read by Python's `html.parser`; each stays character by character. Elements of a line (b, a, span and the like) are nested; every
other tag ends a line. Within `code`, `pre`, `script`, `style` and whatever has `translate="no"` nothing is translated.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

from attent.errors import DataError
from attent.markup.inline import AlignedText, Element, cut_line
from attent.markup.placeholders import cut_placeholders
from attent.markup.placement import place_tags

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

# A line's end in a text, with the white space around it. It is looked for once in each white space, or long ones would take quadratic time.
BREAK = re.compile(r"(?<![ \t\f])[ \t\f]*+[\r\n][ \t\f\r\n]*+")
# White space of HTML, which a no-break space is not.
SPACES = " \t\f\r\n"


@dataclass
class Token:
    """A piece of a document.

    Args:
        kind: "text", "open", "close", "point" (a tag without content), or "block", which ends a line.
        raw: the characters of the document.
        name: of the tag.
        is_verbatim: whether its content is not translated.
    """

    kind: str
    raw: str
    name: str = ""
    is_verbatim: bool = False


@dataclass
class MarkedText:
    """A document as lines to translate and what stands between them.

    Args:
        parts: strings that stay as they are, and lines.
        escape: writes text between tags; as HTML unless given.
    """

    parts: list[str | Element] = field(default_factory=list)
    escape: Callable[[str], str] = field(default_factory=lambda: escape)

    @property
    def lines(self) -> list[Element]:
        """The lines, in order."""
        return [part for part in self.parts if isinstance(part, Element)]

    @property
    def texts(self) -> list[str]:
        """The texts to translate, in order."""
        return [line.text for line in self.lines]

    def render(self, translations: Iterable[AlignedText]) -> str:
        """Return the document with the translation of each text in its place."""
        remaining = iter(translations)
        return "".join(part if isinstance(part, str) else place_tags(part, next(remaining), self.escape) for part in self.parts)


def escape(text: str) -> str:
    """Write text between tags."""
    return html.escape(text, quote=False).replace("\u00a0", "&nbsp;")


def parse_html(text: str) -> MarkedText:
    """Cut HTML into lines to translate, and the rest.

    A tag that is never closed, or never opened, stands where it stood between words, as an empty one does. A line end
    within a sentence is a space, as browsers show it.

    Raises:
        DataError: a line has too many tags, or they are nested too deep; a declaration cannot be read.
    """
    tokens = _join_verbatim(_tokens(text))
    marked, line = MarkedText(), list[Token]()
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
        self.tokens: list[tuple[int, Token]] = []
        # after the last > there is no tag, however often one seems to begin, and Python would look for its end each time
        end = text.rfind(">") + 1
        try:
            self.feed(text[:end])
            self.close()
        # a declaration that Python does not read
        except AssertionError as error:
            raise DataError(f"no HTML: {error}") from error
        if end < len(text):
            self.tokens.append((end, Token("text", "")))

    def _add(self, kind: str, name: str = "", *, is_verbatim: bool = False) -> None:
        line, column = self.getpos()
        self.tokens.append((self._lines[line - 1] + column, Token(kind, "", name, is_verbatim)))

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


def _tokens(text: str) -> list[Token]:
    """Return the tokens of a document, each with its characters; together they are the document."""
    positioned = _Reader(text).tokens
    begins = [0, *(begin for begin, _ in positioned[1:]), len(text)]
    if not positioned:
        return [Token("text", text)] if text else []
    for (_, token), begin, end in zip(positioned, begins, begins[1:], strict=False):
        token.raw = text[begin:end]
    tokens = list[Token]()
    for _, token in positioned:
        # html.parser parts a text at its entities
        if tokens and token.kind == tokens[-1].kind == "text":
            tokens[-1].raw += token.raw
        else:
            tokens.append(token)
    return tokens


def _join_verbatim(tokens: Sequence[Token]) -> list[Token]:
    """Make one token of each element that is not translated, to its closing tag; of an unclosed one its tag alone."""
    result, number, ends = list[Token](), 0, _element_ends(tokens)
    while number < len(tokens):
        token = tokens[number]
        end = ends.get(number) if token.is_verbatim else None
        if end is None:
            result.append(token)
            number += 1
            continue
        raw = "".join(part.raw for part in tokens[number : end + 1])
        is_block = token.name not in INLINE | VERBATIM_INLINE
        result.append(Token("block" if is_block else "point", raw))
        number = end + 1
    return result


def _element_ends(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the number of the closing tag of each opening one, as if elements of other names were not there."""
    waiting, ends = dict[str, list[int]](), dict[int, int]()
    for number, token in enumerate(tokens):
        numbers = waiting.setdefault(token.name, [])
        if token.raw.startswith("</"):
            if numbers:
                ends[numbers.pop()] = number
        elif token.name and not token.raw.endswith("/>"):
            numbers.append(number)
    return ends


def build_lines(
    tokens: Sequence[Token], unescape: Callable[[str], str] = html.unescape, escape: Callable[[str], str] = escape
) -> list[Element]:
    """Return a line of tokens with its elements; several where it has a great many.

    Args:
        tokens: without blocks.
        unescape: reads text between tags.
        escape: writes it.

    Raises:
        DataError: it has too many tags, or they are nested too deep.
    """
    line, open_elements = Element(), list[tuple[Element, str]]()
    current = line
    closed = _matching(tokens)
    closing = set(closed.values())
    for number, token in enumerate(tokens):
        if token.kind == "text":
            current.children += cut_placeholders(unescape(token.raw), escape)
        elif token.kind == "open" and number in closed:
            element = Element(token.raw, tokens[closed[number]].raw)
            current.children.append(element)
            open_elements.append((current, token.name))
            current = element
        elif token.kind == "close" and number in closing:
            current, _ = open_elements.pop()
        else:
            current.children.append(Element(token.raw))
    return cut_line(line)


def _add_line(marked: MarkedText, tokens: Sequence[Token]) -> None:
    """Add a line, if it has something to translate."""
    before, tokens, after = _trimmed(tokens)
    marked.parts.append(before)
    lines = build_lines(tokens, lambda raw: html.unescape(BREAK.sub(" ", raw)))
    if any(any(map(str.isalnum, piece.text)) for piece in lines):
        marked.parts += lines
    else:
        marked.parts.append("".join(token.raw for token in tokens))
    marked.parts.append(after)


def _trimmed(tokens: Sequence[Token]) -> tuple[str, list[Token], str]:
    """Return the white space before a line, the line without it, and the white space after it."""
    result, before, after = list(tokens), "", ""
    if result and result[0].kind == "text":
        before = result[0].raw[: len(result[0].raw) - len(result[0].raw.lstrip(SPACES))]
        result[0] = replace(result[0], raw=result[0].raw[len(before) :])
    if result and result[-1].kind == "text":
        text = result[-1].raw.rstrip(SPACES)
        after = result[-1].raw[len(text) :]
        result[-1] = replace(result[-1], raw=text)
    return before, result, after


def _matching(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the number of the closing tag of each opening one that has one; tags that cross have none."""
    waiting, closed = list[int](), dict[int, int]()
    # where tags of a name stand among those that wait
    indices: dict[str, list[int]] = {}
    for number, token in enumerate(tokens):
        if token.kind == "open":
            indices.setdefault(token.name, []).append(len(waiting))
            waiting.append(number)
        elif token.kind == "close" and (own := indices.get(token.name)):
            closed[waiting[own[-1]]] = number
            for crossed in reversed(waiting[own[-1] :]):
                waiting.pop()
                indices[tokens[crossed].name].pop()
    return closed
