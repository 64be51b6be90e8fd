"""Documents that were made to be slow or large.

Time and memory grow with their size, not faster, until they are refused in a line.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attent.documents.word_processors import CONTENT_TYPES, MAIN, MIME_TYPE, TEXT, WORD

# Reads the documents that are named to it, each in a process of its own, and writes them with their own text as the
# translation, then with its words in another order. Prints seconds of processor time, megabytes beyond what the process
# had before, and the refusal, if any.
WORKER = """
import json, os, sys, time
from attent.text.units import Span, units
from attent.documents import read_document
from attent.errors import DataError
from attent.documents.inline import AlignedText, untranslated

def megabytes(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) / 1024

def crossed(text):
    spans, words, links, begin = units(text), [], [], 0
    for span in spans[::2] + spans[1::2]:
        words.append(text[span.begin : span.end])
        links.append((span, Span(begin, begin + len(words[-1]))))
        begin += len(words[-1]) + 1
    return AlignedText(" ".join(words), links)

def measure(path):
    with open(path, "rb") as file:
        content = file.read()
    before, begin, refusal = megabytes("VmRSS"), time.process_time(), ""
    seconds = []
    for translate in untranslated, crossed:
        begin = time.process_time()
        try:
            document = read_document(content, os.path.splitext(path)[1])
            # the links of lines without tags are not asked for
            lines = document.lines
            document.render(translate(line.text) if line.elements else AlignedText(line.text, ()) for line in lines)
        except DataError as error:
            refusal = str(error)
        seconds.append(time.process_time() - begin)
    return max(seconds), megabytes("VmHWM") - before, refusal

for line in sys.stdin:
    sys.stdout.flush()
    if not os.fork():
        print(json.dumps(measure(line.strip())), flush=True)
        os._exit(0)
    if os.wait()[1]:
        print(json.dumps([0, 0, "died"]))
    sys.stdout.flush()
"""

Generator = Callable[[int], bytes]
# The content of the part that says what a file's parts are.
TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    f'<Override PartName="/word/document.xml" ContentType="{MAIN}"/></Types>'
)
BEGIN, END = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "end"))
LONG = '<w:rFonts w:ascii="{0}"/>'


def word_document(body: str, namespaces: str = "") -> bytes:
    document = f'<w:document xmlns:w="{WORD[1:-1]}"{namespaces}>{body}</w:document>'
    return packed({CONTENT_TYPES: TYPES, "word/document.xml": document})


def open_document(body: str) -> bytes:
    content = f'<office xmlns:text="{TEXT[1:-1]}">{body}</office>'
    return packed({"mimetype": MIME_TYPE.decode(), "content.xml": content})


def packed(entries: dict[str, str]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return stream.getvalue()


def run(text: str, text_format: str = "") -> str:
    return f"<w:r>{f'<w:rPr>{text_format}</w:rPr>' if text_format else ''}<w:t>{text}</w:t></w:r>"


def paragraph(content: str) -> str:
    return f"<w:p>{content}</w:p>"


def declarations(count: int) -> str:
    return "".join(f' xmlns:n{number}="u{number}"' for number in range(count))


def formatted(text_format: str) -> str:
    """Return a run of a format, with 500 tabs."""
    return f"<w:r><w:rPr>{text_format}</w:rPr><w:t>a</w:t>{'<w:tab/>' * 500}</w:r>"


def nested(tag: str, depth: int, inner: str) -> str:
    return f"<{tag}>" * depth + inner + f"</{tag}>" * depth


# Paragraphs by name; of a size that takes a tenth of a second or more where time is quadratic.
WORD_PARAGRAPHS: dict[str, tuple[int, Callable[[int], str]]] = {
    "nested fields": (5_000, lambda n: run("a") + BEGIN * n + run("b") + END * n),
    "fields side by side": (3_000, lambda n: run("a") + (BEGIN + run("b") + END) * n),
    "fields without an end": (8_000, lambda n: run("a") + BEGIN * n),
    "one large picture": (40_000, lambda n: run("a") + f"<w:r><w:x>{'<w:y/>' * n}</w:x></w:r>"),
    "a large picture in nested links": (
        10_000,
        lambda n: nested("w:hyperlink", 45, run("a") + f"<w:x>{'<w:y/>' * n}</w:x>"),
    ),
    "a large format": (10_000, lambda n: run("a", "<w:b/>" * n)),
    "a long attribute and tabs": (1_000_000, lambda n: formatted(LONG.format("a" * n))),
    "a long hidden value and tabs": (1_000_000, lambda n: formatted(f'<w:lang w:val="{"a" * n}"/><w:b/>')),
    "a long comment in a format, and tabs": (1_000_000, lambda n: formatted(f"<w:b/><!--{'a' * n}-->")),
    "a long format of most text": (
        1_000_000,
        lambda n: run("one two " * 99, LONG.format("a" * n)) + (run(" b", "<w:b/>") + run(" i", "<w:i/>")) * 120,
    ),
    "bold and not": (1_500, lambda n: (run("a ", "<w:b/>") + run("b ")) * n),
    "texts and line ends": (2_500, lambda n: f"<w:r>{'<w:t>a</w:t><w:br/>' * n}</w:r>"),
    "links": (2_500, lambda n: f"<w:hyperlink>{run('a')}</w:hyperlink>" * n),
}
OPEN_PARAGRAPHS: dict[str, tuple[int, Callable[[int], str]]] = {
    "a long style and tabs": (
        1_000_000,
        lambda n: f'<text:span text:style-name="{"a" * n}">{"a<text:tab/>" * 500}</text:span>',
    ),
    "nested long styles": (
        10_000,
        lambda n: f'<text:span text:style-name="{"a" * n}">a' * 230 + "</text:span>" * 230,
    ),
    "spans in nested spans": (5_000, lambda n: nested("text:span", 200, "a<text:span>b</text:span>" * n)),
    "spans": (1_500, lambda n: "<text:span>a</text:span>b " * n),
    "spaces": (10_000, lambda n: "a" + '<text:s text:c="200"/>' * n + "b"),
    "notes": (3_000, lambda n: f"a {'<text:note><text:p>b</text:p></text:note>' * n}"),
    "links in links": (5_000, lambda n: nested("text:a", 40, "<text:s/>a" * n)),
}


def _in_paragraph(write: Callable[[str], bytes], tag: str, content: Callable[[int], str]) -> Generator:
    return lambda n: write(f"<{tag}>{content(n)}</{tag}>")


# By ending and name.
GENERATORS: dict[str, dict[str, tuple[int, Generator]]] = {
    ".docx": {
        **{name: (n, _in_paragraph(word_document, "w:p", body)) for name, (n, body) in WORD_PARAGRAPHS.items()},
        "nested paragraphs": (10_000, lambda n: word_document(nested("w:p", 240, run("a") * n))),
        "boxes in boxes": (
            4_000,
            lambda n: word_document("<w:p><w:r><w:pict>" * 4 + paragraph(run("a")) * n + "</w:pict></w:r></w:p>" * 4),
        ),
        "paragraphs": (6_000, lambda n: word_document(paragraph(run("a")) * n)),
        "namespaces": (40_000, lambda n: word_document(paragraph(run("a") * 5), declarations(n))),
        "namespaces and tabs": (
            100,
            lambda n: word_document(paragraph(f"<w:r>{'<w:t>a</w:t><w:tab/>' * 2_000}</w:r>"), declarations(n)),
        ),
    },
    ".odt": {
        **{name: (n, _in_paragraph(open_document, "text:p", body)) for name, (n, body) in OPEN_PARAGRAPHS.items()},
        "nested paragraphs": (20_000, lambda n: open_document(nested("text:p", 240, "<text:s/>a" * n))),
    },
}


def _text(piece: str, *, line: int = 0, before: str = "", after: str = "") -> Generator:
    """Return a generator of a repeated piece, cut into lines of so many pieces."""

    def generate(n: int) -> bytes:
        lines = [piece * min(line, n - begin) for begin in range(0, n, line)] if line else [piece * n]
        return f"{before}{chr(10).join(lines)}{after}".encode()

    return generate


GENERATORS[".html"] = {
    **{
        repr(piece): (n, _text(piece, after=">x"))
        for piece, n in (
            ("<!--a>", 20_000),
            ("<!--a--!>", 8_000),
            ("<![CDATA[a>", 8_000),
            ("<![if a>", 8_000),
            ("<?a", 20_000),
            ("<a ", 30_000),
            ('<a b=" > " ', 8_000),
            ("<a b=\"'>", 8_000),
            ("<a b='", 20_000),
            ("</a ", 20_000),
            ("<script>a", 20_000),
            ("<!doctype a", 20_000),
            ("<b>a</b> ", 3_000),
            ("<br>a", 4_000),
            ("<b>", 8_000),
            ("<pre>", 8_000),
            ("<b><i></b></i>", 4_000),
            ("<p>a", 8_000),
            ("a.b", 300_000),
            ("a@", 20_000),
            ("http://.", 20_000),
            ("{a", 20_000),
            ("%(a", 20_000),
            ("&amp", 20_000),
            ("a!", 300_000),
        )
    },
    "attributes": (500_000, _text("b ", before="<a ", after=">x</a>")),
    "attributes of nothing": (500_000, _text("=", before="<a ", after=">x</a>")),
    "quoted attributes": (200_000, _text("b='' ", before="<a ", after=">x</a>")),
    "white space in a tag": (1_000_000, _text(" ", before="<a b", after="=c>x</a>")),
    "untranslated": (100_000, _text("translate ", before="<a ", after=">x</a>")),
    "elements in elements": (30, _text("<p>" + "<b>" * 49 + "a" + "</b>" * 49)),
    "elements in one element": (3, _text("<p><i>" + "<b>a</b> <br>" * 900 + "</i>")),
    "one long element": (4, _text("<p><b>" + "!a" * 40_000 + "</b>")),
    "words cut by tags": (15, _text("<p>" + "a<b>b</b>" * 120)),
}
GENERATORS[".md"] = {
    **{
        repr(piece): (n, _text(piece, line=max(1, 15_000 // len(piece)), after="\n"))
        for piece, n in (
            ("*a ", 12_000),
            ("[a", 15_000),
            ("](a", 60_000),
            ("`a", 15_000),
            ("![", 15_000),
            ("<a", 15_000),
            ("a|", 8_000),
            ("\\*", 8_000),
            *(("[a](b", 12_000), ("&#", 15_000), ("_a", 15_000), ("~~a ", 8_000)),
        )
    },
    **{
        repr(piece): (n, _text(piece, line=1, after="\n"))
        for piece, n in (
            ("a", 8_000),
            ("- a", 4_000),
            ("> a", 4_000),
            ("# a", 4_000),
            ("[a]: '", 6_000),
            ("> - " * 10 + "a", 400),
            ("- " * 5_000, 200),
            (">" * 20 + " a", 2_000),
            ("<div>", 8_000),
            ("```", 8_000),
            ("|a|b|", 4_000),
            ("1. a\n", 3_000),
            ("a\n=", 4_000),
            ("[", 8_000),
        )
    },
    "marks that end others": (30, lambda n: (("*a " * 1_500 + "a_ " * 1_500 + "\n\n") * n).encode()),
    "lines after a quote": (2_500, lambda n: (">" * 20 + " a\n" + "a\n" * n).encode()),
    "growing ticks": (8, lambda n: ((" ".join("`" * size for size in range(1, 60)) * 8 + "\n\n") * n).encode()),
    "matter before the text": (60_000, _text("a\n", before="---\n")),
}
CUE = "1\n0:0:1.5 --> 0:0:2.5\n"
GENERATORS[".srt"] = {
    repr(piece): (n, _text(piece, before=CUE))
    for piece, n in (
        ("<b>a</b> ", 3_000),
        ("a\n", 4_000),
        ("- a\n", 8_000),
        ("<b ", 20_000),
        ("{\\ ", 20_000),
        (" ", 1_000_000),
        ("0:0:1.5 -->\n", 20_000),
    )
}
GENERATORS[".txt"] = {
    repr(piece): (n, _text(piece)) for piece, n in (("a b", 1_000_000), ("a\n", 30_000), (" ", 2_000_000))
}


NAMES = [(ending, name) for ending, generators in GENERATORS.items() for name in generators]
# What once took minutes or gigabytes, of each kind; all others are tried where there is time.
FAST = {
    *(
        "nested fields",
        "nested paragraphs",
        "one large picture",
        "a long attribute and tabs",
        "a long style and tabs",
        "nested long styles",
    ),
    *("'<!--a>'", "'<!--a--!>'", "'<![CDATA[a>'", "attributes", "marks that end others", "elements in one element"),
}
Measured = tuple[float, float, str]
Measure = Callable[[str, str, int], Measured]


@pytest.fixture(scope="module")
def measure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measure]:
    """Read and write a generator's document of a size."""
    if not Path("/proc/self/status").exists():
        pytest.skip("memory is read from Linux' /proc")
    folder = tmp_path_factory.mktemp("hostile")
    with subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdin and worker.stdout

        def measure(ending: str, name: str, size: int) -> Measured:
            path = folder / f"document{ending}"
            path.write_bytes(GENERATORS[ending][name][1](size))
            print(path, file=worker.stdin, flush=True)
            seconds, megabytes, refusal = json.loads(worker.stdout.readline())
            return seconds, megabytes, refusal

        yield measure
        worker.stdin.close()


def check_growth(measure: Measure, ending: str, name: str) -> list[Measured]:
    """Check a document and one of twice its size, and return what was measured."""
    size, _ = GENERATORS[ending][name]
    measured = [measure(ending, name, item) for item in (size, 2 * size)]
    for _ in range(4):
        (seconds, _, refusal), (more_seconds, _, more_refusal) = measured
        assert "died" not in (refusal, more_refusal)
        assert all("\n" not in item and len(item) < 200 for item in (refusal, more_refusal))
        # where time is quadratic it is 4 times as long
        if more_seconds <= 3 * seconds + 0.1:
            break
        # a neighbor of the processor may take as much: the fastest of several is the document's own
        measured = [
            min(item, measure(ending, name, factor * size)) for item, factor in zip(measured, (1, 2), strict=True)
        ]
    assert measured[1][0] <= 3 * measured[0][0] + 0.1
    assert measured[1][1] <= 3 * measured[0][1] + 8
    return measured


@pytest.mark.parametrize(("ending", "name"), [name for name in NAMES if name[1] in FAST])
def test_time_and_memory_grow_no_faster_than_a_document(measure: Measure, ending: str, name: str) -> None:
    check_growth(measure, ending, name)


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "name"), NAMES)
def test_any_document_takes_seconds_and_megabytes(measure: Measure, ending: str, name: str) -> None:
    size, generate = GENERATORS[ending][name]
    measured = dict(zip((size, 2 * size), check_growth(measure, ending, name), strict=True))
    # up to the largest that the server takes, or until it is refused
    sizes = [size]
    while len(generate(2 * sizes[-1])) <= 10 * 2**20:
        sizes.append(2 * sizes[-1])
    refusal = ""
    for item in reversed(sizes[::-2]):
        seconds, megabytes, refusal = measured.get(item) or measure(ending, name, item)
        # three seconds on a machine with nothing else to do
        assert seconds <= 6 and megabytes <= 300, f"{item:,}: {seconds:.1f} s, {megabytes:.0f} MB {refusal}"
        if refusal:
            break
    assert refusal != "died"
