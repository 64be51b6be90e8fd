"""HTML documents: split them into lines to translate, and keep everything else unchanged.

Tags are kept character by character. Inline elements (b, a, span and the like) are nested in a line; every other tag
ends it. The content of `code`, `pre`, `script`, `style` and of elements with `translate="no"` is not translated.
"""

import html
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from attent.documents.inline import AlignedText, Element, cut_line, cut_placeholders, has_words
from attent.documents.placement import place_tags
from attent.errors import DataError

# Inline elements.
INLINE = frozenset(
    (
        *(
            "a",
            "abbr",
            "acronym",
            "b",
            "bdi",
            "bdo",
            "big",
            "cite",
            "data",
            "del",
            "dfn",
            "em",
            "font",
            "i",
            "ins",
            "label",
            "mark",
        ),
        *("q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u"),
    )
)
# Inline elements without content.
POINTS = frozenset(("br", "img", "wbr", "input"))
# Elements whose content is not translated.
VERBATIM_INLINE = frozenset(("code", "kbd", "samp", "var"))
VERBATIM = VERBATIM_INLINE | frozenset(["pre", "script", "style", "textarea", "svg", "math", "template", "noscript"])
VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)

# A line break with the white space around it. Each stretch of white space is searched once, since long ones would
# otherwise take quadratic time.
BREAK = re.compile(r"(?<![ \t\f])[ \t\f]*+[\r\n][ \t\f\r\n]*+")
# White space in HTML, without the no-break space.
SPACES = " \t\f\r\n"
# Elements whose text contains no tags except their own closing tag.
SCRIPTS = frozenset(("script", "style"))
NAME = rf"<(?P<slash>/?)(?P<name>[A-Za-z][^{SPACES}/>]*+)"
# A tag, which does not end at a > between quotation marks after an equals sign; and one regardless of quotation marks.
TAG = re.compile(rf"{NAME}(?:[^=>]++|=[{SPACES}]*+(?:\"[^\"]*+\"|'[^']*+'|[^{SPACES}>\"'][^{SPACES}>]*+)?+)*+>")
UNQUOTED_TAG = re.compile(rf"{NAME}[^>]*+>")
ATTRIBUTE = re.compile(
    rf"(?P<name>[^{SPACES}/>=]++)(?:[{SPACES}]*+=[{SPACES}]*+"
    rf"(?P<value>\"[^\"]*+\"|'[^']*+'|[^{SPACES}>\"'][^{SPACES}>]*+))?+"
)
COMMENT_END = re.compile(r"--!?>")
DOCTYPE = re.compile(r"<!doctype", re.IGNORECASE)
# Marked sections of SGML and of Office.
SECTION = re.compile(
    rf"<!\[[{SPACES}]*+(?:(?:temp|cdata|ignore|include|rcdata)|(?P<office>if|else|endif))\b", re.IGNORECASE
)


@dataclass(slots=True)
class Token:
    """A piece of a document.

    Args:
        kind: "text", "open", "close", "point" (a tag without content), or "block", which ends a line.
        raw: its characters in the document.
        name: the name of the tag.
        is_verbatim: True if its content is not translated.
    """

    kind: str
    raw: str
    name: str = ""
    is_verbatim: bool = False


@dataclass
class MarkedText:
    """A document, split into lines to translate and the text between them.

    Args:
        parts: lines to translate, and strings that stay unchanged, in order.
        escape: escapes text; for HTML by default.
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
        """Return the document with each text replaced by its translation."""
        remaining = iter(translations)
        return "".join(
            part if isinstance(part, str) else place_tags(part, next(remaining), self.escape) for part in self.parts
        )


def escape(text: str) -> str:
    """Escape text for HTML."""
    return html.escape(text, quote=False).replace("\u00a0", "&nbsp;")


def parse_html(text: str) -> MarkedText:
    """Split HTML into lines to translate and the rest.

    An unpaired tag keeps its position between words, like an empty element. A line break within a sentence becomes a
    space, as in browsers.

    Raises:
        DataError: a line has too many tags, or they are nested too deeply; or a marked section is unknown.
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


def _tokens(text: str) -> list[Token]:
    """Return the tokens of a document, which add up to the document.

    Raises:
        DataError: a marked section has an unknown name.
    """
    tokens, reader = list[Token](), _Reader(text)
    begin = position = 0
    while (position := text.find("<", position)) >= 0:
        token = reader.read(position)
        if token is None:
            position += 1
            continue
        if begin < position:
            tokens.append(Token("text", text[begin:position]))
        tokens.append(token)
        begin = position = position + len(token.raw)
    if begin < len(text):
        tokens.append(Token("text", text[begin:]))
    return tokens


class _Reader:
    """Reads tags, comments and declarations, as browsers do (HTML Standard, section 13.2.5).

    Once a kind of closing mark has not been found, it is not searched again.

    Args:
        text: the document.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._last = {end: text.rfind(end) for end in (">", "]]>", "]>")}
        self._tag = TAG

    def read(self, begin: int) -> Token | None:
        """Return the token that begins with the "<" at this position; None if it is text."""
        text = self._text
        if self._last[">"] < begin:
            return None
        if match := self._tag.match(text, begin) or self._unquoted(begin):
            return self._element(match)
        if text.startswith("<!--", begin):
            end = COMMENT_END.search(text, begin + 2)
            return Token("point", text[begin : end.end() if end else len(text)])
        if text.startswith("<![", begin):
            name = SECTION.match(text, begin)
            if name is None:
                raise DataError(f"not HTML: unknown marked section {text[begin : begin + 20]!r}")
            return Token(
                "block", text[begin : self._end("]>" if name["office"] else "]]>", begin) or self._end(">", begin)]
            )
        if text.startswith("<?", begin) or DOCTYPE.match(text, begin):
            return Token("block", text[begin : self._end(">", begin)])
        # browsers read these as comments
        return Token("point", text[begin : self._end(">", begin)]) if text.startswith(("<!", "</"), begin) else None

    def _end(self, mark: str, begin: int) -> int:
        """Return the end of the next occurrence of a mark; 0 if there is none."""
        return 0 if self._last[mark] < begin else self._text.index(mark, begin) + len(mark)

    def _unquoted(self, begin: int) -> re.Match[str] | None:
        """Return a tag with an unclosed quotation mark.

        From here on, quotation marks are ignored; otherwise each such tag would take long to read.
        """
        match = UNQUOTED_TAG.match(self._text, begin)
        self._tag = UNQUOTED_TAG if match else self._tag
        return match

    def _element(self, match: re.Match[str]) -> Token:
        """Return the token of a tag."""
        raw, name = match[0], match["name"].lower()
        if match["slash"]:
            return Token("close" if name in INLINE or name in VERBATIM else "block", raw, name)
        if _is_empty(raw):
            return Token("point" if name in POINTS or name in INLINE else "block", raw, name)
        is_verbatim = name in VERBATIM or _is_untranslated(raw)
        if name in SCRIPTS:
            # its content has no tags; without a closing tag it extends to the end of the document
            end = re.compile(f"</{name}(?=[{SPACES}/>])", re.IGNORECASE).search(self._text, match.end())
            return Token(
                "block", self._text[match.start() : end.start() if end else len(self._text)], name, is_verbatim
            )
        kind = (
            "point" if name in POINTS else "open" if name in INLINE or (is_verbatim and name not in VOID) else "block"
        )
        return Token(kind, raw, name, is_verbatim)


def _is_empty(tag: str) -> bool:
    """Return whether a tag ends with a slash that is not part of an attribute value."""
    if not tag.endswith("/>"):
        return False
    last = tag.rsplit(None, 1)[-1]
    return "=" not in last or last[-3] in "\"'="


def _is_untranslated(tag: str) -> bool:
    """Return whether a tag has the attribute translate="no"."""
    if "translate" not in tag.lower():
        return False
    values = (match["value"] for match in ATTRIBUTE.finditer(tag) if match["name"].lower() == "translate")
    return any(value.strip("\"'").lower() == "no" for value in values if value)


def _join_verbatim(tokens: Sequence[Token]) -> list[Token]:
    """Join each untranslated element into one token; an unclosed one becomes a token of its tag only."""
    result, number, ends = list[Token](), 0, _element_ends(tokens)
    while number < len(tokens):
        token = tokens[number]
        end = ends.get(number) if token.is_verbatim else None
        if end is not None:
            raw = "".join(part.raw for part in tokens[number : end + 1])
            token = Token("point" if token.name in INLINE | VERBATIM_INLINE else "block", raw)
        result.append(token)
        number = 1 + (number if end is None else end)
    return result


def _element_ends(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the index of the closing tag of each opening tag, ignoring elements with other names."""
    waiting, ends = dict[str, list[int]](), dict[int, int]()
    for number, token in enumerate(tokens):
        numbers = waiting.setdefault(token.name, [])
        if token.raw.startswith("</"):
            if numbers:
                ends[numbers.pop()] = number
        elif token.name and not token.raw.endswith("/>"):
            numbers.append(number)
    return ends


class TagPairs:
    """Matches opening with closing tags or marks; pairs never cross."""

    def __init__(self) -> None:
        self.closed: dict[int, int] = {}
        self._waiting: list[tuple[str, int]] = []
        # indices of the waiting tags by name
        self._indices: dict[str, list[int]] = {}

    def open(self, name: str, number: int) -> None:
        """Add an opening tag."""
        self._indices.setdefault(name, []).append(len(self._waiting))
        self._waiting.append((name, number))

    def close(self, name: str, number: int) -> bool:
        """Add a closing tag, and return whether it closes an open tag."""
        if not (own := self._indices.get(name)):
            return False
        first = own[-1]
        self.closed[self._waiting[first][1]] = number
        while len(self._waiting) > first:
            self._indices[self._waiting.pop()[0]].pop()
        return True


def build_lines(
    tokens: Sequence[Token], unescape: Callable[[str], str] = html.unescape, escape: Callable[[str], str] = escape
) -> list[Element]:
    """Return a line made of tokens, or several lines if it has many elements.

    Args:
        tokens: tokens of any kind but "block".
        unescape: decodes text between tags.
        escape: encodes text between tags.

    Raises:
        DataError: the line has too many tags, or they are nested too deeply.
    """
    line, open_elements = Element(), list[tuple[Element, str]]()
    current = line
    pairs = TagPairs()
    for number, token in enumerate(tokens):
        if token.kind == "open":
            pairs.open(token.name, number)
        elif token.kind == "close":
            pairs.close(token.name, number)
    closed, closing = pairs.closed, set(pairs.closed.values())
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
    """Add a line to a document; if it has no words, as an unchanged string."""
    before, tokens, after = _trimmed(tokens)
    marked.parts.append(before)
    lines = build_lines(tokens, lambda raw: html.unescape(BREAK.sub(" ", raw)))
    if any(has_words(piece.text) for piece in lines):
        marked.parts += lines
    else:
        marked.parts.append("".join(token.raw for token in tokens))
    marked.parts.append(after)


def _trimmed(tokens: Sequence[Token]) -> tuple[str, list[Token], str]:
    """Split a line into leading white space, the tokens between, and trailing white space."""
    result, before, after = list(tokens), "", ""
    if result and result[0].kind == "text":
        before = result[0].raw[: len(result[0].raw) - len(result[0].raw.lstrip(SPACES))]
        result[0] = replace(result[0], raw=result[0].raw[len(before) :])
    if result and result[-1].kind == "text":
        text = result[-1].raw.rstrip(SPACES)
        after = result[-1].raw[len(text) :]
        result[-1] = replace(result[-1], raw=text)
    return before, result, after
