"""Exchanges with a server: valid ones, and hostile ones that are slow, endless, huge, nested or corrupt."""

from __future__ import annotations

import itertools
import json
import random
import urllib.parse
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fuzzing.documents import ARCHIVES, UNITS, spoilt, well_formed
from fuzzing.live_server import json_request, request, upload
from fuzzing.mutators import HOSTILE_JSON, JUNK, mutate_bytes, mutate_json
from fuzzing.valid_requests import FORM, TEXTS, VALID_DOCUMENTS

ROUTES = (
    *(
        "/",
        "/translate",
        "/detect",
        "/languages",
        "/frontend/settings",
        "/suggest",
        "/translate_file",
        "/download_file/a",
    ),
    *(
        "/health",
        "/ready",
        "/metrics",
        "/spec",
        "/web/server.js",
        "/web/../app.py",
        "/nowhere",
        "/translate/",
        "//health",
    ),
)
METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "PRI", "get", "X" * 40)
KINDS = (
    "application/json",
    FORM,
    "multipart/form-data",
    "multipart/form-data; boundary=",
    "text/plain",
    "a+json",
    "application/json; charset=utf-16",
)
GARBAGE = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /\r\n",
    b"\r\n" * 5000,
    bytes(5000),
)
# Bytes sent of an endless request, unless the server closes the connection earlier.
ENDLESS = 12 * 2**20
# The share of sizes that are the maximum, and of valid requests that are documents.
LARGE = 0.02


class Exchange(NamedTuple):
    """The bytes to send on a connection, and the answers to expect.

    Args:
        kind: the name of its kind.
        pieces: bytes to send, and seconds to wait between them.
        expected: numbers of the valid requests whose answers must arrive, in order.
        answers: the number of answers to read if none is known.
        ends: how the connection ends: it is kept, closed, aborted, or closed for writing before anything is read.
        statuses: the allowed statuses of an answer; if empty, all but server errors.
        seconds: the seconds after which the client gives up.
    """

    kind: str
    pieces: Sequence[bytes | float]
    expected: tuple[int, ...] = ()
    answers: int = 1
    ends: str = "keep"
    statuses: frozenset[int] = frozenset()
    seconds: float = 60.0


def draw(seed: int, number: int, valid: Sequence[bytes]) -> Exchange:
    """Return the exchange for a seed and a number."""
    dice = random.Random(f"exchange {seed}/{number}")
    return dice.choices(list(DRAWN), list(DRAWN.values()))[0](dice, valid)


def _size(dice: random.Random, largest: int) -> int:
    """Return a size, rarely the largest, so that most cost little."""
    return largest if dice.random() < LARGE else min(int(2 ** dice.uniform(0, 10)), largest)


def _number(dice: random.Random, valid: Sequence[bytes]) -> int:
    """Return the number of a valid request, rarely that of a document, since those take long."""
    texts = len(valid) - VALID_DOCUMENTS
    return dice.randrange(texts, len(valid)) if dice.random() < LARGE else dice.randrange(texts)


def _valid(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    """Return a valid request: whole, byte by byte, in chunks, or several pipelined."""
    number = _number(dice, valid)
    data = valid[number]
    head, _, body = data.partition(b"\r\n\r\n")
    match dice.choice(("whole", "whole", "whole", "pieces", "chunks", "several")):
        case "pieces":
            places = sorted(dice.sample(range(1, len(data)), 3))
            cut = [data[begin:end] for begin, end in itertools.pairwise((0, *places, len(data)))]
            return Exchange("valid, in pieces", [part for piece in cut for part in (piece, 0.002)], (number,))
        case "chunks" if body:
            head = b"\r\n".join(line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length"))
            chunks = [body[begin : begin + 50] for begin in range(0, len(body), 50)]
            coded = b"".join(b"%X;a=b\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\nA: b\r\n\r\n"
            return Exchange("valid, in chunks", [head + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + coded], (number,))
        case "several":
            numbers = tuple(_number(dice, valid) for _ in range(dice.randint(2, 6)))
            return Exchange("valid, several at once", [b"".join(valid[number] for number in numbers)], numbers)
    return Exchange("valid", [data], (number,))


def _spoilt_json(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    name = dice.choice(("format", "alternatives", "glossary", "stream", "api_key"))
    text, _, _ = mutate_json(json.dumps({"q": dice.choice(TEXTS), "source": "en", "target": "de", name: "a"}), dice)
    codec = dice.choice(("utf-8", "utf-8", "utf-8", "utf-8", "utf-16", "utf-32", "utf-8-sig", "utf-7"))
    path = dice.choice(("/translate", "/translate", "/detect"))
    return Exchange("spoilt JSON", [request("POST", path, text.encode(codec, "surrogatepass"))])


def _spoilt_bytes(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    head, _, body = dice.choice(valid).partition(b"\r\n\r\n")
    if dice.random() < 0.5:
        # a head that may announce more than is sent
        return Exchange("spoilt bytes", [mutate_bytes(head, dice)[0] + b"\r\n\r\n" + body], ends="half", seconds=3)
    kind = dice.choice((head.rpartition(b"Content-Type: ")[2].split(b"\r\n")[0].decode(), *KINDS))
    method, path, _ = head.decode().split(" ", 2)
    return Exchange(
        "a spoilt body", [request(method, path, mutate_bytes(body, dice)[0], kind)], ends="close", seconds=10
    )


def _shape(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    """Return a request with JSON of an arbitrary shape."""
    size = _size(dice, 20_000)
    texts = (
        [[]] * size,
        ["a"] * size,
        "a" * size,
        {"a": size},
        [["a", "b"]] * size,
        {str(number): "a" for number in range(size)},
        [None] * size,
    )
    texts = (
        *texts,
        "\ud83d",
        "\ud800" * 10,
        "\0" * size,
        "\u202e",
        10**400,
        -0.0,
        True,
        ["a", ["b"]],
        "a. " * size,
        "a\n" * size,
        " " * size,
    )
    values: dict[str, object] = {"q": "one", "source": "en", "target": "de"}
    values[
        dice.choice(
            ("q", "q", "source", "target", "format", "alternatives", "alignment", "glossary", "stream", "api_key", "x")
        )
    ] = dice.choice(texts)
    return Exchange(
        "a shape of JSON",
        [json_request(values, dice.choice(("/translate", "/translate", "/detect")))],
    )


def _query(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    size = _size(dice, 15_000)
    names = dice.choice(
        (
            map(str, range(size)),
            ["q"] * size,
            ["%zz"] * size,
            ["q=%F0%9F"] * size,
            ["a=b;c"] * size,
            ["="] * size,
            [""] * size,
        )
    )
    return Exchange(
        "a query of many names", [request("POST", f"/translate?{'&'.join(names)}")], ends="close", seconds=30
    )


def _form(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    size = _size(dice, 100_000)
    unit = dice.choice(("a=b&", "q=one&", "&", "%", "+", "=", "%00", "q=\r\n&", "source=en&target=de&q=one&"))
    return Exchange(
        "a form",
        [request("POST", dice.choice(("/translate", "/detect", "/suggest")), (unit * size).encode(), FORM)],
        seconds=30,
    )


def _multipart(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    size, file = _size(dice, 10_000), 'Content-Disposition: form-data; name="file"; filename="{}"\r\n\r\none\r\n'
    field = '--a\r\nContent-Disposition: form-data; name="q"\r\n\r\none\r\n'
    names = ("a" * size + ".txt", "../../a.txt", "a\0.txt", "a.TXT", ".txt", "a.docx", "%2e%2e/a.md", "\r\n", "é.srt")
    body = dice.choice(
        (
            *(
                field * size,
                "--a\r\n" + file.format(dice.choice(names)),
                f"--a\r\nX: {'a' * size}\r\n\r\n",
                "--a\r\nA: b\r\n" * size,
                "--a" * size,
            ),
            *(
                "--a\r\n\r\n" * size,
                field[:-5] * size,
                f"--a\r\nContent-Disposition: form-data; name={'a' * size}\r\n\r\n",
                "\r\n" * size,
            ),
        )
    )
    body += dice.choice(
        ("--a--\r\n", "", "--a", '--a\r\nContent-Disposition: form-data; name="source"\r\n\r\nen\r\n--a--\r\n')
    )
    boundary = dice.choice(("a", "a", "a", "", '"a"', "a" * 500, "\u00e9"))
    return Exchange(
        "a form of parts",
        [request("POST", "/translate_file", body.encode(), f"multipart/form-data; boundary={boundary}")],
        seconds=30,
    )


def _markup(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    size, texts = _size(dice, 5_000), _size(dice, 50) if dice.random() < 0.1 else 1
    unit = dice.choice(UNITS[".html"]) + dice.choice(("", "", dice.choice(UNITS[".html"])))
    text = (unit * size)[: min(size, 5_000)]
    return Exchange("markup", [json_request({"q": [text] * texts, "source": "en", "target": "de", "format": "html"})])


def _document(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    match dice.choice(("spoilt", "spoilt", "well-formed", "growing", "text")):
        case "growing":
            ending, kinds = dice.choice(sorted(ARCHIVES.items()))
            first, make = kinds[dice.choice(sorted(kinds))]
            content = make(first if dice.random() < 0.1 else first // 10)
        case "text":
            ending = dice.choice(sorted(UNITS))
            content = (dice.choice(UNITS[ending]) * _size(dice, 20_000)).encode()
        case kind:
            ending, content = spoilt(dice) if kind == "spoilt" else well_formed(dice)
    return Exchange(
        "a document",
        [upload(content, f"a{ending}", *dice.choice((("en", "de"), ("en", "de"), ("auto", "de"), ("de", "en"))))],
    )


def _download(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    name = dice.choice(
        (
            "a.txt",
            "../serve.log",
            "..%2f..%2fetc/passwd",
            "%00",
            "a" * _size(dice, 20_000),
            "%",
            "é",
            ".",
            "",
            "a/b",
            "%c0%ae/a",
            "\\..",
        )
    )
    key = f"{dice.getrandbits(128):032x}"
    key = f"{key[:8]}-{key[8:12]}-4{key[13:16]}-8{key[17:20]}-{key[20:]}"
    path = dice.choice((f"/download_file/{name}", f"/download_file/{key}.{name}", f"/download_file/{key}"))
    return Exchange("a download", [request("GET", path.replace(" ", ""))], ends="close", seconds=10)


def _route(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    path = dice.choice(ROUTES) + dice.choice(("", "", "", "/", "?a=b", "#a", "%2f", "/" * _size(dice, 5_000)))
    more = dice.choice(
        (
            "",
            "",
            "Range: bytes=0-\r\n",
            "Expect: 100-continue\r\n",
            "Upgrade: websocket\r\nConnection: Upgrade\r\n",
            "If-None-Match: *\r\n",
        )
    )
    return Exchange("a route", [request(dice.choice(METHODS), path, more=more)], ends="close", seconds=10)


def _headers(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    size = _size(dice, 40_000)
    lines = (
        "A: b\r\n" * size,
        f"A: {'b' * size}\r\n",
        f"{'A' * size}: b\r\n",
        "A: b\r\n c\r\n" * size,
        "Host: b\r\n" * size,
        "A\r\n",
        ": b\r\n",
        "A: \0\r\n",
    )
    framing = (
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x3\r\n",
        f"Content-Length: {'9' * 30}\r\n",
    )
    framing += (
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
    )
    more = dice.choice((*lines, *framing)) + dice.choice(
        ("", "Authorization: Bearer \r\n", f"X-Forwarded-For: {'1.1.1.1, ' * 20}\r\n")
    )
    data = f"{dice.choice(('GET /health', 'POST /translate'))} HTTP/1.1\r\nHost: a\r\n{more}\r\nabc"
    return Exchange("headers", [data.encode()], ends=dice.choice(("half", "close")), seconds=2)


def _trailers(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    size = _size(dice, 40_000)
    head = (
        b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    ends = (
        "0\r\n" + "A: b\r\n" * size + "\r\n",
        f"0\r\nA: {'b' * size}\r\n\r\n",
        f"1;{'a' * size}\r\na\r\n0\r\n\r\n",
        "1\r\na\r\n" * size + "0\r\n\r\n",
    )
    ends += (
        "-1\r\n\r\n",
        "FFFFFFFFFFFFFFFFF\r\n",
        "zz\r\n",
        "0" * size,
        "1\r\nab\r\n",
        "0\r\n\r\nGET /health HTTP/1.1\r\n\r\n",
    )
    return Exchange("trailers", [head + dice.choice(ends).encode()], ends=dice.choice(("half", "close")), seconds=2)


def _key(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    """Return a request with a wrong key, which must be refused."""
    key = dice.choice(("a", "a" * _size(dice, 5_000), "é", "\0", "../a", " a"))
    values = {"q": "one", "source": "en", "target": "de"}
    if dice.random() < 0.5:
        return Exchange("a wrong key", [json_request(values | {"api_key": key})], statuses=frozenset((403,)))
    form = urllib.parse.urlencode(values | {"api_key": key}).encode()
    return Exchange("a wrong key", [request("POST", "/translate", form, FORM)], statuses=frozenset((403,)))


def _garbage(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    return Exchange("garbage", [dice.choice((*GARBAGE, *JUNK, dice.randbytes(200)))], ends="half", seconds=3)


def _gone(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    """Return a client that disconnects during its request or during the answer."""
    data = dice.choice(
        (dice.choice(valid), upload(b"one two. " * _size(dice, 200_000), "a.txt"), b"".join(dice.choices(valid, k=20)))
    )
    data = data[: dice.randrange(1, len(data))] if dice.random() < 0.5 else data
    return Exchange(
        "a client that goes",
        [data, dice.choice((0, 0.01, 0.05))],
        answers=0,
        ends=dice.choice(("close", "abort")),
        seconds=5,
    )


def _slow(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    data = dice.choice(valid)[: dice.randrange(10, 40)]
    return Exchange(
        "a slow client",
        [part for index in range(len(data)) for part in (data[index : index + 1], 0.1)],
        answers=0,
        ends="close",
    )


def _endless(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    """Return a request with endless or excessively large headers, path, trailers or body."""
    chunked = (
        b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    long = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 10400000\r\n\r\n"
    begin, unit = dice.choice(
        (
            *(
                (b"GET /health HTTP/1.1\r\n", b"A: b\r\n"),
                (b"GET /health HTTP/1.1\r\nA: ", b"b"),
                (b"GET /", b"a"),
                (b"POST /translate?", b"a&"),
            ),
            *(
                (chunked + b"0\r\n", b"A: b\r\n"),
                (chunked, b"10\r\n" + b"a" * 16 + b"\r\n"),
                (chunked + b"1;", b"a"),
                (chunked, b"0" * 8),
            ),
            *(
                (long + b'{"q":"', b"a"),
                (long + b'{"q":[', b"[],"),
                (long, b"["),
                (long.replace(b"json", b"x-www-form-urlencoded"), b"a=b&"),
            ),
        )
    )
    piece = unit * (2**16 // len(unit))
    return Exchange("what has no end", [begin, *[piece] * (ENDLESS // len(piece))], ends="close", seconds=10)


def _hostile_json(dice: random.Random, valid: Sequence[bytes]) -> Exchange:
    body = dice.choice(
        (*HOSTILE_JSON, '{"q":' * 5000, '{"q":"one","q":["two"]}', '{"q":"\\ud800"}', '{"q":NaN}', '{"q":1e999}')
    ).encode("utf-8", "replace")
    return Exchange("no object", [request("POST", "/translate", body)])


# Exchanges, and their relative frequencies.
DRAWN: dict[Callable[[random.Random, Sequence[bytes]], Exchange], float] = {
    **{
        _valid: 25,
        _spoilt_json: 12,
        _spoilt_bytes: 8,
        _shape: 8,
        _query: 4,
        _form: 3,
        _multipart: 4,
        _markup: 2,
        _document: 4,
        _download: 5,
    },
    **{
        _route: 6,
        _headers: 5,
        _trailers: 4,
        _key: 4,
        _garbage: 4,
        _gone: 3,
        _slow: 0.2,
        _endless: 0.3,
        _hostile_json: 3,
    },
}
