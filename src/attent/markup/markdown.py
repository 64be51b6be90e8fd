"""Markdown: lines to translate, and everything around them as it was.

Blocks are told by the beginning of a line: headings, quotes, lists, tables, fenced and indented code. Within a line emphasis and links are
elements; code, pictures, HTML tags and addresses are not translated. Source: CommonMark 0.31, sections 4 to 6, as far as lines go.
"""

from __future__ import annotations

import re

from attent.errors import DataError
from attent.markup.html import MarkedText
from attent.markup.inline import Element, cut_line
from attent.markup.placeholders import cut_placeholders

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
# What may stand before the text of a line: spaces, quotes, a bullet or a number, a task's box, a heading's signs, a table's bar.
PREFIX = re.compile(r"\s*(?:>\s?)*(?:(?:[-*+]|\d{1,9}[.)])\s+(?:\[[ xX]\]\s+)?)?(?:#{1,6}\s+)?(?:\|\s*)?")
# Lines without text, spaces at both ends aside: rules, underlines of headings, the line below a table's head, definitions of links.
RULE = re.compile(r"(?:[-*_=]\s*){2,}\Z|(?=\|?[\s:|-]+\|)[\s:|-]+\Z|\[[^\]]+\]:\s+\S.*\Z|\Z")
# Characters of a line that is searched for marks, and of a link's text, a tag or code in it.
MAX_LINE, MAX_SPAN = 20_000, 1_000
INLINE = re.compile(
    r"(?P<escape>\\[!-/:-@\[-`{-~])"
    rf"|(?P<code>(?:(?<!`)|(?<=\\`))(?P<ticks>`++).{{1,{MAX_SPAN}}}?(?<!`)(?P=ticks)(?!`))"
    rf"|(?P<image>!\[[^\]]{{0,{MAX_SPAN}}}\]\([^()\s]*+(?:\s+\"[^\"]{{0,{MAX_SPAN}}}\")?\))"
    rf"|(?P<html><(?:/?[A-Za-z][^<>]{{0,{MAX_SPAN}}}|https?://[^<>\s]{{1,{MAX_SPAN}}}|!--.{{0,{MAX_SPAN}}}?--)>)"
    rf"|(?P<link>\[(?=[^\]]{{0,{MAX_SPAN}}}\](?:\(|\[)))"
    rf"|(?P<end>\](?:\([^()\s]*+(?:\s+\"[^\"]{{0,{MAX_SPAN}}}\")?\)|\[[^\]]{{0,{MAX_SPAN}}}\]))"
    r"|(?P<mark>\*\*|__|~~|\*|(?<!\w)_|_(?!\w))"
    r"|(?P<bar>\|)"
)


def parse_markdown(text: str) -> MarkedText:
    """Cut Markdown into lines to translate, and the rest. A mark that is never closed is text.

    Raises:
        DataError: a line is too long, or has too many marks, or they are nested too deep.
    """
    marked, fence, in_front_matter = MarkedText(), "", False
    for number, line in enumerate(text.splitlines(keepends=True)):
        body = line.rstrip("\r\n")
        if in_front_matter or (number == 0 and body == "---"):
            in_front_matter = number == 0 or body not in ("---", "...")
            marked.parts.append(line)
            continue
        match = FENCE.match(body)
        if len(body) > MAX_LINE:
            raise DataError(f"line {number + 1} has {len(body):,} characters, more than {MAX_LINE:,}")
        if fence:
            fence = "" if match and match[1].startswith(fence) and not body.strip(" `~") else fence
            marked.parts.append(line)
        elif match:
            fence = match[1]
            marked.parts.append(line)
        elif RULE.match(body.strip()) or body.startswith(("    ", "\t")):
            marked.parts.append(line)
        else:
            _add_line(marked, body, line[len(body) :])
    return marked


def _add_line(marked: MarkedText, body: str, ending: str) -> None:
    """Add a line: its cells, if it is of a table, and what stands around them."""
    prefix = PREFIX.match(body)
    assert prefix is not None
    begin = prefix.end()
    end = max(_text_end(body), begin)
    marked.parts.append(body[:begin])
    is_table = "|" in prefix[0] or body.rstrip().endswith("|")
    for cell in _cells(body[begin:end]) if is_table else [body[begin:end]]:
        lines = _lines_of(cell)
        marked.parts += lines if any(any(map(str.isalnum, line.text)) for line in lines) else [cell]
    marked.parts.append(body[end:] + ending)


def _text_end(body: str) -> int:
    """Return where the text of a line ends: before a heading's signs, a table's bar, and the backslash or the spaces that break a line."""
    text = body.rstrip()
    text = text.removesuffix("\\").rstrip()
    text = text.removesuffix("|").rstrip()
    heading = text.rstrip("#")
    return len(heading.rstrip() if heading[-1:].isspace() else text)


def _cells(text: str) -> list[str]:
    """Return the cells of a table's row and the bars between them."""
    cells, begin = list[str](), 0
    for match in INLINE.finditer(text):
        if match["bar"]:
            cells += text[begin : match.start()], "|"
            begin = match.end()
    return [*cells, text[begin:]]


def _lines_of(text: str) -> list[Element]:
    """Return a line with its elements; several where it has a great many."""
    matches = [match for match in INLINE.finditer(text) if not match["bar"]]
    closed = _matching(text, matches)
    closing = set(closed.values())
    line, begins = Element(), list[int]()
    parents, position = [line], 0
    for number, match in enumerate(matches):
        is_point = match["escape"] or match["code"] or match["image"] or match["html"]
        if not (is_point or number in closed or number in closing):
            continue
        parents[-1].children += cut_placeholders(text[position : match.start()])
        position = match.end()
        if is_point:
            parents[-1].children.append(Element(match[0]))
        elif number in closed:
            element = Element(match[0], matches[closed[number]][0], can_vanish=match["mark"] is not None)
            parents[-1].children.append(element)
            parents.append(element)
            begins.append(match.start())
        else:
            begin = begins.pop()
            # code in emphasis: spaces that stood around both must not come between them, which would end the emphasis
            if not any(child.strip() if isinstance(child, str) else child.children for child in parents.pop().children):
                parents[-1].children[-1] = Element(text[begin:position])
    parents[-1].children += cut_placeholders(text[position:])
    return cut_line(line)


def _matching(text: str, matches: list[re.Match[str]]) -> dict[int, int]:
    """Return the number of the closing mark of each opening one that has one; marks that cross have none."""
    waiting, closed = list[int](), dict[int, int]()
    for number, match in enumerate(matches):
        if match["link"]:
            waiting.append(number)
            continue
        if not (match["mark"] or match["end"]):
            continue
        opening_mark = "[" if match["end"] else match[0]
        # emphasis ends after a word, and begins before one
        can_end = not text[match.start() - 1 : match.start()].isspace() and match.start() > 0
        can_begin = match["mark"] and not text[match.end() : match.end() + 1].isspace() and match.end() < len(text)
        opening = next((index for index in reversed(range(len(waiting))) if matches[waiting[index]][0] == opening_mark), None)
        if can_end and opening is not None:
            closed[waiting[opening]] = number
            del waiting[opening:]
        elif can_begin:
            waiting.append(number)
    return closed
