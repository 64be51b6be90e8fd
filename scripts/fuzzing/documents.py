"""Test documents in every supported format.

There are kinds that grow with a number, random well-formed documents, and corrupt ones.
"""

from __future__ import annotations

import io
import json
import random
import re
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from fuzzing.mutators import mutate_bytes

Make = Callable[[int], bytes]
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
OFFICE, TEXT = "urn:oasis:names:tc:opendocument:xmlns:office:1.0", "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
# Nesting depth: libxml2 reads at most 256 levels, of which these formats need a few themselves.
DEEP = 230
RUN, FIELD = "<w:r><w:t>a</w:t></w:r>", '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
ATTRIBUTE, NAMESPACE, LONG = 'w:a#="" ', 'xmlns:a#="a" ', '<w:sz w:val="' + "1" * 2000 + '"/>'
ROW = f"<w:tr><w:tc><w:p>{RUN}</w:p></w:tc></w:tr>"
# Units to repeat, by the extension of each text format, and words.
UNITS: dict[str, list[str]] = json.loads(Path(__file__).with_name("units.json").read_text("utf-8"))
WORDS = UNITS.pop("words")


def archive(entries: Mapping[str, bytes | str]) -> bytes:
    """Return a zip archive whose entries compress to just over a hundredth, as higher ratios are refused."""
    stream, dice = io.BytesIO(), random.Random(0)
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, content in entries.items():
            data = content.encode() if isinstance(content, str) else content
            if name.endswith(".xml") and len(data) > 2**19:
                data += b"<!--" + dice.randbytes(len(data) // 150).hex().encode() + b"-->"
            file.writestr(
                zipfile.ZipInfo(name), data, zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            )
    return stream.getvalue()


def unpacked(content: bytes) -> dict[str, bytes]:
    """Return the entries of a zip archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return {name: file.read(name) for name in file.namelist()}


def word(body: str, types: str = "", **entries: str) -> bytes:
    """Return a .docx with the given body XML and further content types and entries."""
    content_types = (
        f'<Types xmlns="{TYPES}"><Override PartName="/word/document.xml" ContentType="{MAIN}"/>{types}</Types>'
    )
    document = f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
    return archive({"[Content_Types].xml": content_types, "word/document.xml": document, **entries})


def open_document(body: str) -> bytes:
    """Return an .odt with the given body XML."""
    head = f'<office:document-content xmlns:office="{OFFICE}" xmlns:text="{TEXT}"><office:body><office:text>'
    content = f"{head}{body}</office:text></office:body></office:document-content>"
    return archive({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content})


def _paragraph(inner: str) -> bytes:
    return word(f"<w:p>{inner}</w:p>")


def _formatted(properties: str, inner: str) -> bytes:
    return _paragraph(f"<w:r><w:rPr>{properties}</w:rPr><w:t>a</w:t>{inner}</w:r>")


def _nested(opening: str, inner: str, closing: str, depth: int = DEEP) -> str:
    return opening * depth + inner + closing * depth


def _numbered(text: str, n: int) -> str:
    return "".join(text.replace("#", str(number)) for number in range(n))


def _parts(n: int) -> bytes:
    """Return a .docx with n headers."""
    kind = MAIN.replace("document.main", "header")
    types = _numbered(f'<Override PartName="/word/header#.xml" ContentType="{kind}"/>', n)
    header = f'<w:hdr xmlns:w="{WORD}"><w:p>{RUN}</w:p></w:hdr>'
    return word(f"<w:p>{RUN}</w:p>", types, **{f"word/header{number}.xml": header for number in range(n)})


def _size(value: str) -> str:
    return f'<w:sz w:val="{value}"/>'


def _span(name: str, inner: str) -> str:
    return f'<text:span text:style-name="{name}">{inner}</text:span>'


def _text(inner: str) -> bytes:
    return open_document(f"<text:p>{inner}</text:p>")


BALANCED: dict[str, tuple[tuple[str, str], ...]] = {
    ".md": (
        ("*a ", "a_ "),
        ("_a ", "a* "),
        ("[", "]"),
        ("[a", "](b)"),
        ("<b>", "</b>"),
        ("(", ")"),
        ("`", "``"),
        ("> ", "a\n"),
    ),
    ".html": (
        ("<b>", "</b>"),
        ("<b>a ", "a</b> "),
        ("<p>", "</p>"),
        ("<div>a", "</div>"),
        ("<a>", "</p>"),
        ("<table>", "</b>"),
    ),
}
# Kinds of archives, with the number from which they start to grow.
ARCHIVES: dict[str, dict[str, tuple[int, Make]]] = {
    ".docx": {
        "a format with a long attribute and tabs": (250, lambda n: _formatted(_size("1" * 100 * n), "<w:tab/>" * n)),
        "a format of many elements and tabs": (500, lambda n: _formatted("<w:b/>" * n, "<w:tab/>" * n)),
        "a format of many elements and texts": (500, lambda n: _formatted("<w:b/>" * n, "<w:t>a</w:t><w:br/>" * n)),
        "a format of many attributes": (500, lambda n: _formatted(f"<w:b {_numbered(ATTRIBUTE, n)}/>", "<w:tab/>" * n)),
        "a format with a long name and few tabs": (10_000, lambda n: _formatted(_size("1" * 20 * n), "<w:tab/>" * 200)),
        "runs of long formats": (200, lambda n: _paragraph(f"<w:r><w:rPr>{LONG}</w:rPr><w:t>a</w:t></w:r>" * n)),
        "runs": (1000, lambda n: _paragraph(RUN * n)),
        "runs of different formats": (
            250,
            lambda n: _paragraph(_numbered('<w:r><w:rPr><w:sz w:val="#"/></w:rPr><w:t>a </w:t></w:r>', n)),
        ),
        "runs of two formats": (250, lambda n: _paragraph(f"{RUN}<w:r><w:rPr><w:b/></w:rPr><w:t>a </w:t></w:r>" * n)),
        "paragraphs": (1000, lambda n: word(f"<w:p>{RUN}</w:p>" * n)),
        "nested paragraphs around texts": (1000, lambda n: word(_nested("<w:p>", RUN * n, "</w:p>"))),
        "nested paragraphs with texts": (50, lambda n: word(f"<w:p>{RUN * n}" * (DEEP // 2) + "</w:p>" * (DEEP // 2))),
        "nested deletions": (1000, lambda n: word(_nested("<w:del>", f"<w:p>{RUN}</w:p>" * n, "</w:del>"))),
        "nested fields": (500, lambda n: _paragraph(FIELD.format("begin") * n + RUN + FIELD.format("end") * n)),
        "fields": (250, lambda n: _paragraph((FIELD.format("begin") + RUN + FIELD.format("end")) * n)),
        "fields that never end": (500, lambda n: _paragraph(f"{FIELD.format('begin')}{RUN}" * n)),
        "nested links around texts": (
            250,
            lambda n: _paragraph(_nested("<w:hyperlink>", RUN * n, "</w:hyperlink>", 40)),
        ),
        "links": (250, lambda n: _paragraph(f"<w:hyperlink>{RUN}</w:hyperlink>" * n)),
        "bookmarks": (500, lambda n: _paragraph(RUN + '<w:bookmarkStart w:id="1"/><w:bookmarkEnd w:id="1"/>' * n)),
        "breaks and texts": (500, lambda n: _paragraph("<w:r><w:t>a b</w:t><w:br/></w:r>" * n)),
        "a long text": (10_000, lambda n: _paragraph(f"<w:r><w:t>{'a ' * n}</w:t></w:r>")),
        "placeholders": (500, lambda n: _paragraph(f"<w:r><w:t>{'{a} ' * n}</w:t></w:r>")),
        "cells": (500, lambda n: word(f"<w:tbl>{ROW * n}</w:tbl>")),
        "attributes": (1000, lambda n: word(f"<w:p {_numbered(ATTRIBUTE, n)}>{RUN}</w:p>")),
        "namespaces": (500, lambda n: word(f"<w:p {_numbered(NAMESPACE, n)}>{RUN * 50}</w:p>")),
        "nested namespaces": (
            500,
            lambda n: word(_numbered('<w:sdt xmlns:a#="a">', 200) + f"<w:p>{RUN * n}</w:p>" + "</w:sdt>" * 200),
        ),
        "headers": (100, _parts),
        "entries": (
            100,
            lambda n: word(f"<w:p>{RUN}</w:p>", **{f"word/media/{number}": "a" * 1000 for number in range(n)}),
        ),
        "content types": (1000, lambda n: word(f"<w:p>{RUN}</w:p>", '<Override PartName="/a" ContentType="b"/>' * n)),
    },
    ".odt": {
        "spans of a long style": (250, lambda n: _text(_span("a" * 100 * n, "a<text:tab/>" * n))),
        "nested spans of long styles": (
            250,
            lambda n: _text(_nested('<text:span text:style-name="' + "a" * n + '">', "a", "</text:span>")),
        ),
        "nested spans around texts": (
            250,
            lambda n: _text(_nested('<text:span text:style-name="a">', "a<text:tab/>" * n, "</text:span>")),
        ),
        "nested spans with texts": (
            250,
            lambda n: _text(f"<text:span>{'a<text:tab/>' * n}" * 40 + "</text:span>" * 40),
        ),
        "spans": (250, lambda n: _text("a " + f"{_span('b', 'a')} " * n)),
        "spans of different styles": (250, lambda n: _text(_numbered(_span("s#", "a "), n))),
        "spans of long styles": (100, lambda n: _text(_span("a" * 5000, "a ") * n)),
        "spaces": (1000, lambda n: _text("a" + '<text:s text:c="199"/>' * n)),
        "tabs": (1000, lambda n: _text("a<text:tab/>" * n)),
        "lines of a paragraph": (500, lambda n: _text("a<text:line-break/>" * n)),
        "paragraphs": (1000, lambda n: open_document("<text:p>a</text:p>" * n)),
        "nested paragraphs": (1000, lambda n: open_document(_nested("<text:p>", "a<text:tab/>" * n, "</text:p>"))),
        "nested paragraphs with texts": (
            50,
            lambda n: open_document(f"<text:p>{'a<text:tab/>' * n}" * 200 + "</text:p>" * 200),
        ),
        "nested links": (250, lambda n: _text(_nested("<text:a>", "a<text:tab/>" * n, "</text:a>", 40))),
        "links": (250, lambda n: _text("<text:a>a</text:a> " * n)),
        "notes": (
            250,
            lambda n: _text("a<text:note><text:note-body><text:p>b</text:p></text:note-body></text:note>" * n),
        ),
        "a long text": (10_000, lambda n: _text("a " * n)),
        "bookmarks": (500, lambda n: _text("a" + '<text:bookmark-start text:name="a"/>' * n)),
    },
}


def growing() -> dict[str, tuple[str, int, Make]]:
    """Return the extension, first number and generator of every kind, by name."""
    kinds = {
        f"{ending} of {name}": (ending, *kind) for ending, named in ARCHIVES.items() for name, kind in named.items()
    }
    for ending, units in UNITS.items():
        kinds |= {f"{ending} of {unit!r}": (ending, 2000, partial(repeated, unit)) for unit in units}
    # equally many openings of one kind and closings of another
    for ending, pairs in BALANCED.items():
        kinds |= {
            f"{ending} of {opening!r} and {closing!r}": (ending, 1000, partial(_balanced, opening, closing))
            for opening, closing in pairs
        }
    return kinds


def repeated(unit: str, n: int, before: str = "") -> bytes:
    """Return a text of n units."""
    return f"{before}{unit * n}".encode()


def _balanced(opening: str, closing: str, n: int) -> bytes:
    return f"{opening * n}a{closing * n}".encode()


SPACES, GAPS = (" ", " ", " ", " ", "  ", ""), (" ", " ", " ", "")
TAGS = (
    ("<b>", "</b>"),
    ("<i>", "</i>"),
    ("<u>", "</u>"),
    ('<a href="x">', "</a>"),
    ('<span class="y">', "</span>"),
    ("<code>", "</code>"),
)
BLOCKS = ("<p>{}</p>", "<h1>{}</h1>", "<ul><li>{}</li></ul>", "<div>{}<br>\n</div>", "{}<hr>", "<!-- c --><p>{}</p>")
LINES = ("# {}", "{}", "- {}", "> {}", "1. {}", "```\na b\n```\n\n{}", "| {} | b |\n|---|---|\n| a | b |")
MARKS = (("**", "**"), ("*", "*"), ("`", "`"), ("[", "](https://example.org)"))


def _inline(dice: random.Random, wraps: tuple[tuple[str, str], ...], depth: int = 2) -> str:
    """Return words, some of them inside markup."""
    pieces: list[str] = []
    for _ in range(dice.randint(1, 4)):
        if wraps and depth and dice.random() < 0.4:
            opening, closing = dice.choice(wraps)
            inner = (
                " ".join(dice.choices(WORDS, k=dice.randint(1, 3)))
                if opening in "`["
                else _inline(dice, wraps, depth - 1)
            )
            pieces.append(f"{opening}{inner.strip()}{closing}")
        else:
            pieces.append(dice.choice(SPACES).join(dice.choices(WORDS, k=dice.randint(1, 6))))
    return "".join(piece + dice.choice(GAPS if wraps is TAGS else (" ",)) for piece in pieces).strip() + dice.choice(
        (".", "", "!", "?")
    )


def _runs(dice: random.Random) -> str:
    runs: list[str] = []
    for _ in range(dice.randint(1, 6)):
        properties = dice.choice(("", "", "<w:b/>", '<w:i/><w:lang w:val="en"/>', '<w:sz w:val="20"/>'))
        more = dice.choice(("", "", "", "<w:tab/>", "<w:br/>", "<w:noBreakHyphen/>", '<w:footnoteReference w:id="2"/>'))
        text = _inline(dice, ()) + dice.choice(GAPS)
        run = f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t>{more}</w:r>'
        marked = f'<w:bookmarkStart w:id="1"/>{run}<w:bookmarkEnd w:id="1"/>'
        runs.append(dice.choice((run, run, run, f"<w:hyperlink>{run}</w:hyperlink>", marked)))
    return "".join(runs)


def _spans(dice: random.Random, depth: int = 2) -> str:
    pieces: list[str] = []
    for _ in range(dice.randint(1, 4)):
        inner = _inline(dice, ()) if not depth or dice.random() < 0.6 else _spans(dice, depth - 1)
        more = dice.choice(("", " ", " ", " ", "<text:tab/>", '<text:s text:c="2"/>', "<text:line-break/>"))
        pieces.append(
            dice.choice((inner, _span("a", inner), _span("b", inner), f'<text:a href="x">{inner}</text:a>')) + more
        )
    return "".join(pieces)


def well_formed(dice: random.Random) -> tuple[str, bytes]:
    """Return the extension and content of a small, realistic document."""
    count = dice.randint(1, 8)
    match dice.choice((".txt", ".html", ".md", ".srt", ".docx", ".odt")):
        case ".docx":
            return ".docx", word("".join(f"<w:p>{_runs(dice)}</w:p>" for _ in range(count)))
        case ".odt":
            return ".odt", open_document("\n".join(f"<text:p>{_spans(dice)}</text:p>" for _ in range(count)))
        case ".html":
            return ".html", "\n".join(dice.choice(BLOCKS).format(_inline(dice, TAGS)) for _ in range(count)).encode()
        case ".md":
            return ".md", "".join(
                dice.choice(LINES).format(_inline(dice, MARKS)) + "\n\n" for _ in range(count)
            ).encode()
        case ".srt":
            cue = "{number}\n00:00:0{number},000 --> 00:00:0{number},900\n{text}\n\n"
            return ".srt", "".join(
                cue.format(number=number, text=_inline(dice, TAGS[:2])) for number in range(count)
            ).encode()
        case _:
            ends = dice.choice(("\n", "\r\n", "\n\n"))
            return ".txt", ends.join(_inline(dice, ()) for _ in range(count)).encode(
                dice.choice(("utf-8", "utf-8-sig", "utf-16"))
            )


def spoilt(dice: random.Random) -> tuple[str, bytes]:
    """Return the extension and content of a corrupt document, in its bytes or in its XML."""
    ending, content = well_formed(dice)
    is_archive = content.startswith(b"PK")
    for _ in range(dice.choice((1, 1, 2, 5))):
        if not is_archive or dice.random() < 0.3:
            return ending, mutate_bytes(content, dice)[0]
        entries = unpacked(content)
        name = dice.choice(sorted(entries))
        data = entries[name]
        if dice.random() < 0.5:
            entries[name] = mutate_bytes(data, dice)[0]
        else:
            # a tag in another's place
            tags = re.findall(rb"<[^>]*>", data) or [b" "]
            new = dice.choice((b"", dice.choice(tags), dice.choice(tags) * 3))
            entries[name] = data.replace(dice.choice(tags), new, dice.choice((1, -1)))
        content = archive(entries)
    return dice.choice((ending, ending, ending, ".txt", ".html", ".md", ".srt", ".docx", ".odt")), content


def text_of(ending: str, content: bytes) -> str:
    """Return the text of a document, read independently of attent."""
    match ending:
        case ".docx":
            root = etree.fromstring(unpacked(content)["word/document.xml"])
            signs = {"tab": "\t", "br": "\n", "noBreakHyphen": "\N{NON-BREAKING HYPHEN}", "p": "\n\n"}
            names = [(str(node.tag).rpartition("}")[2], node) for node in root.iter(etree.Element)]
            return "".join(node.text or "" if name == "t" else signs.get(name, "") for name, node in names)
        case ".odt":
            root = etree.fromstring(unpacked(content)["content.xml"])
            signs = {"tab": "\t", "line-break": "\n"}
            for node in root.iter(etree.Element):
                name, text = str(node.tag).rpartition("}")[2], re.sub("[ \t\r\n]+", " ", node.text or "")
                spaces = " " * int(node.get(f"{{{TEXT}}}c", "1")) if name == "s" else ""
                node.text, node.tail = signs.get(name, spaces) + text, re.sub("[ \t\r\n]+", " ", node.tail or "")
            return "".join(root.itertext())
        case ".html":
            data: list[str] = []
            parser = HTMLParser()
            parser.handle_data = data.append  # pyright: ignore[reportAttributeAccessIssue]
            parser.feed(content.decode())
            parser.close()
            return "".join(data)
        case ".md":
            return content.decode().translate(str.maketrans("", "", "*`"))
    return content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8")
