"""Markdown documents: split them into lines to translate, and keep everything else unchanged.

markdown-it-py separates text from code, HTML blocks and link definitions. Within a line, emphasis and links are
elements; code, images, HTML tags and addresses are not translated. Source: CommonMark 0.31, applied line by line.
"""

import html
import re
import string
from collections.abc import Sequence
from html.entities import html5

from markdown_it import MarkdownIt

from attent.documents.html import MarkedText, TagPairs
from attent.documents.inline import Element, cut_line, cut_placeholders, has_words
from attent.errors import DataError

MAX_NESTING = 20
BLOCKS = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING}).disable("inline")
FRONT_MATTER = re.compile(r"---\r?\n(?:[^\n]*\n)*?(?:---|\.\.\.)\r?(?:\n|\Z)")
LINE = re.compile(r"[^\r\n]*+(?:\r\n|\r|\n)|[^\r\n]++")
# The prefix of a line's text: spaces, quote marks, bullets and numbers, a checkbox or a footnote mark, heading signs, a
# table bar.
PREFIX = re.compile(
    r"\s*(?:>\s*|(?:[-*+]|\d{1,9}[.)])\s+)*(?:\[[ xX]\]\s+|\[\^[^\]\s]{1,64}\]:\s+)?(?:#{1,6}\s+)?(?:\|\s*)?"
)
# Maximum lines of a document, plus the marks of quotes, lists and headings that begin or surround them; each takes
# about 20 microseconds.
MAX_BLOCKS = 100_000
BLOCK_MARK = re.compile(r"[ \t]*+(?:>|[-*+#]|\d{1,9}[.)])")
# Maximum characters of a line that is searched for marks, and of a link's text, a tag or code in it.
MAX_LINE, MAX_SPAN = 20_000, 1_000
INLINE = re.compile(
    r"(?P<escape>\\[!-/:-@\[-`{-~])"
    rf"|(?P<code>(?:(?<!`)|(?<=\\`))(?P<ticks>`++).{{1,{MAX_SPAN}}}?(?<!`)(?P=ticks)(?!`))"
    rf"|(?P<image>!\[[^\]]{{0,{MAX_SPAN}}}\]\([^()\s]*+(?:\s+\"[^\"]{{0,{MAX_SPAN}}}\")?\))"
    rf"|(?P<html><(?:/?[A-Za-z][^<>]{{0,{MAX_SPAN}}}|https?://[^<>\s]{{1,{MAX_SPAN}}}|!--.{{0,{MAX_SPAN}}}?--)>)"
    rf"|(?P<link>\[(?=[^\]]{{0,{MAX_SPAN}}}\](?:\(|\[)))"
    rf"|(?P<end>\](?:\([^()\s]*+(?:\s+\"[^\"]{{0,{MAX_SPAN}}}\")?\)|\[[^\]]{{0,{MAX_SPAN}}}\]))"
    r"|(?P<entity>&(?:#[xX][0-9a-fA-F]{1,6}|#\d{1,7}|[A-Za-z][A-Za-z0-9]{1,31});)"
    r"|(?P<mark>\*\*|__|~~|\*|(?<!\w)_|_(?!\w))"
    r"|(?P<bar>\|)"
)
# Characters that are marks unless they are written as entities.
MARKS = frozenset(string.punctuation) - frozenset("\"'")


def parse_markdown(text: str) -> MarkedText:
    """Split Markdown into lines to translate and the rest; unclosed marks are treated as text.

    Raises:
        DataError: a line is too long or has too many marks, or they are nested too deeply.
    """
    marked, front = MarkedText(escape=str), FRONT_MATTER.match(text)
    if front:
        marked.parts.append(front[0])
        text = text[front.end() :]
    lines = LINE.findall(text)
    for number, line in enumerate(lines, 1 + (front[0].count("\n") if front else 0)):
        if len(line) > MAX_LINE:
            raise DataError(f"line {number} has {len(line):,} characters, more than {MAX_LINE:,}")
    _check_blocks(lines)
    text_lines = {
        number for token in BLOCKS.parse(text) if token.type == "inline" and token.map for number in range(*token.map)
    }
    for number, line in enumerate(lines):
        body = line.rstrip("\r\n")
        if number in text_lines:
            _add_line(marked, body, line[len(body) :])
        else:
            marked.parts.append(line)
    return marked


def _check_blocks(lines: Sequence[str]) -> None:
    """Check that the blocks of a document can be parsed quickly.

    Raises:
        DataError: there are too many blocks.
    """
    total = depth = 0
    for line in lines:
        marks = position = 0
        while marks < MAX_NESTING and (match := BLOCK_MARK.match(line, position)):
            marks, position = marks + 1, match.end()
        # a line without marks continues the quote before it, until a blank line
        depth = marks or (depth if line.strip() else 0)
        total += 1 + depth
    if total > MAX_BLOCKS:
        raise DataError(f"Markdown may have at most {MAX_BLOCKS:,} lines, lists and quotes: split it into several")


def _add_line(marked: MarkedText, body: str, ending: str) -> None:
    """Add a line, or the cells of a table row, with the text around them."""
    prefix = PREFIX.match(body)
    assert prefix is not None
    begin = prefix.end()
    end = max(_text_end(body), begin)
    marked.parts.append(body[:begin])
    is_table = "|" in prefix[0] or body.rstrip().endswith("|")
    for cell in _cells(body[begin:end]) if is_table else [body[begin:end]]:
        content = cell.strip()
        lines = _lines_of(content)
        cell_begin = cell.index(content)
        middle = lines if any(has_words(line.text) for line in lines) else [content]
        marked.parts += [cell[:cell_begin], *middle, cell[cell_begin + len(content) :]]
    marked.parts.append(body[end:] + ending)


def _text_end(body: str) -> int:
    """Return the position at which the text of a line ends.

    It may be followed by heading signs, a table bar, and the backslash or spaces of a line break.
    """
    text = body.rstrip().removesuffix("\\").rstrip().removesuffix("|").rstrip()
    heading = text.rstrip("#")
    return len(heading.rstrip() if heading[-1:].isspace() else text)


def _cells(text: str) -> list[str]:
    """Return the cells of a table row, and the bars between them."""
    cells, begin = list[str](), 0
    for match in INLINE.finditer(text):
        if match["bar"]:
            cells += text[begin : match.start()], "|"
            begin = match.end()
    return [*cells, text[begin:]]


def _lines_of(text: str) -> list[Element]:
    """Return a line with its elements, or several lines if it has many."""
    matches = [match for match in INLINE.finditer(text) if not match["bar"]]
    closed = _pairs(text, matches)
    closing = set(closed.values())
    line, begins = Element(), list[int]()
    parents, position, before = [line], 0, ""
    for number, match in enumerate(matches):
        character = _character(match[0], text[match.end() : match.end() + 1]) if match["entity"] else ""
        is_point = (
            match["escape"] or match["code"] or match["image"] or match["html"] or (match["entity"] and not character)
        )
        if not (is_point or character or number in closed or number in closing):
            continue
        before += text[position : match.start()] + character
        position = match.end()
        if character:
            continue
        parents[-1].children += cut_placeholders(before)
        before = ""
        if is_point:
            parents[-1].children.append(Element(match[0]))
        elif number in closed:
            element = Element(match[0], matches[closed[number]][0], can_vanish=match["mark"] is not None)
            parents[-1].children.append(element)
            parents.append(element)
            begins.append(match.start())
        else:
            begin = begins.pop()
            # code in emphasis: spaces around both must not come between them, or they would end the emphasis
            if not any(child.strip() if isinstance(child, str) else child.children for child in parents.pop().children):
                parents[-1].children[-1] = Element(text[begin:position])
    parents[-1].children += cut_placeholders(before + text[position:])
    return cut_line(line)


def _character(entity: str, following: str) -> str:
    """Return the character of an entity, or "" if the entity must stay.

    It must stay if its character is a mark, white space, or the beginning of a tag or an entity.
    """
    if entity[1] != "#" and entity[1:] not in html5:
        return entity
    character = html.unescape(entity)
    is_mark = character in MARKS and not (character in "&<" and following.isspace())
    return "" if is_mark or not character.strip() else character


def _pairs(text: str, matches: list[re.Match[str]]) -> dict[int, int]:
    """Return the index of each opening mark's closing mark; unclosed and crossing marks are omitted."""
    pairs = TagPairs()
    for number, match in enumerate(matches):
        if match["link"]:
            pairs.open("[", number)
        elif match["mark"] or match["end"]:
            # emphasis ends after a word, and begins before one
            can_end = not text[match.start() - 1 : match.start()].isspace() and match.start() > 0
            can_begin = match["mark"] and not text[match.end() : match.end() + 1].isspace() and match.end() < len(text)
            if not (can_end and pairs.close("[" if match["end"] else match[0], number)) and can_begin:
                pairs.open(match[0], number)
    return pairs.closed
