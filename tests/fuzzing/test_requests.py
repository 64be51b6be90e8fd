from __future__ import annotations

import asyncio
import json
from collections import Counter
from types import SimpleNamespace

import pytest
from fuzzing import requests
from fuzzing.exchanges import Exchange, draw
from fuzzing.live_server import COMPLAINT, Answer, Connection, request
from fuzzing.valid_requests import valid_requests

RIGHT = Answer(200, False, b'{"translatedText": "eins"}')


@pytest.fixture(scope="module")
def valid() -> list[bytes]:
    return valid_requests()


def server(**changed: object) -> SimpleNamespace:
    values = {
        "host": "",
        "port": 0,
        "is_running": True,
        "megabytes": 100.0,
        "descriptors": 10,
        "complaints": [],
        "last_line": "",
    }
    return SimpleNamespace(**(values | changed))


def test_exchanges_are_a_function_of_the_seed(valid: list[bytes]) -> None:
    once, repeated = ([draw(5, number, valid) for number in range(300)] for _ in range(2))
    assert once == repeated
    kinds = Counter(exchange.kind.split(",")[0] for exchange in once)
    assert len(kinds) >= 17
    assert kinds["valid"] > 40
    # nothing that one exchange sends fills a memory
    assert (
        max(sum(len(piece) for piece in exchange.pieces if isinstance(piece, bytes)) for exchange in once) < 16 * 2**20
    )


def test_what_is_sent_of_a_valid_request_is_the_request(valid: list[bytes]) -> None:
    for exchange in (draw(5, number, valid) for number in range(300)):
        if exchange.kind in ("valid", "valid, in pieces"):
            assert (
                b"".join(piece for piece in exchange.pieces if isinstance(piece, bytes)) == valid[exchange.expected[0]]
            )


@pytest.mark.parametrize(
    ("exchange", "answers", "problem", "expected"),
    [
        (Exchange("valid", (), (0,)), [RIGHT], "", ""),
        (Exchange("valid", (), (0,)), [RIGHT._replace(body=b'{"translatedText": "zwei"}')], "", "another answer"),
        (Exchange("valid", (), (0, 0)), [RIGHT], "EOFError", "no answer to a valid request"),
        (Exchange("valid", (), (0,)), [RIGHT._replace(status=400)], "", "another answer"),
        (Exchange("valid", (), (0,)), [RIGHT._replace(status=503)], "", ""),
        (Exchange("markup", ()), [RIGHT._replace(status=500)], "", "status 500"),
        (Exchange("markup", ()), [RIGHT._replace(status=507)], "", "status 507"),
        (Exchange("markup", ()), [RIGHT._replace(status=400)], "", ""),
        (Exchange("markup", ()), [], "TimeoutError", ""),
        (Exchange("markup", ()), [Answer(400, False, b"a" * 5000)], "", "an error of 5000 bytes"),
        (Exchange("a wrong key", (), statuses=frozenset((403,))), [RIGHT], "", "status 200"),
    ],
)
def test_a_planted_answer_is_judged(exchange: Exchange, answers: list[Answer], problem: str, expected: str) -> None:
    attack = requests.Attack(server(), 3)
    attack._expected = [RIGHT]
    attack._judge(17, exchange, answers, problem)
    assert bool(attack.faults) == bool(expected)
    assert expected in "".join(attack.faults)
    assert all("--seed 3 --case 17" in fault for fault in attack.faults)


@pytest.mark.parametrize(
    ("line", "is_complaint"),
    [
        ("Traceback (most recent call last):", True),
        ("ERROR:    Exception in ASGI application", True),
        ("RuntimeError: the handler is closed", True),
        ("run has changed, and cannot be loaded: unexpected KeyError: 'a'", True),
        ("run has changed, and cannot be loaded: Error while deserializing header", False),
        ("run has changed, and was loaded again", False),
    ],
)
def test_a_log_that_complains_is_noticed(line: str, is_complaint: bool) -> None:
    assert bool(COMPLAINT.search(line)) == is_complaint


def test_memory_and_descriptors_must_be_back() -> None:
    assert requests.settled(server(), 95.0, 10, seconds=0) == []
    assert requests.settled(server(), 80.0, 10, seconds=0) == ["memory 100 MB, 80 before"]
    assert requests.settled(server(descriptors=20), 95.0, 10, seconds=0) == ["20 descriptors, 10 before"]


async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer like a server that is wrong about "four" and answers 500 to what it does not know.

    The first answer comes in chunks.
    """
    count = 0
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()
            return
        body = await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or b"0"))
        count += 1
        if count == 1 and b"/health" in head:
            writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        else:
            status = "200 OK" if b"/health" in head or b'"q"' in body else "500 Oh"
            writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)


def test_answers_are_read_in_chunks_and_by_length() -> None:
    async def ask() -> list[Answer]:
        listening = await asyncio.start_server(respond, "127.0.0.1", 0)
        connection = Connection(*listening.sockets[0].getsockname()[:2], "127.0.0.3")
        answers = [
            await connection.ask(data)
            for data in (request("GET", "/health"), request("POST", "/a", b'{"q": 1}'), request("POST", "/a", b"1"))
        ]
        connection.close()
        await asyncio.sleep(0.05)
        listening.close()
        return answers

    assert asyncio.run(ask()) == [
        Answer(200, False, b"abcde"),
        Answer(200, False, b'{"q": 1}'),
        Answer(500, False, b"1"),
    ]


def test_a_server_that_errs_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "WORKERS", 2)

    async def attacked() -> list[str]:
        listening = await asyncio.start_server(respond, "127.0.0.1", 0)
        host, port = listening.sockets[0].getsockname()[:2]
        attack = requests.Attack(server(host=host, port=port), 3)
        attack._expected = [Answer(200, False, b"") for _ in attack._requests]
        # of kinds that are answered at once
        quick = [
            number
            for number in range(400)
            if len(exchange := draw(3, number, attack._requests))
            and len(exchange.pieces) == 1
            and exchange.ends == "keep"
        ]
        await attack.run(quick[:40])
        await asyncio.sleep(0.05)
        listening.close()
        return attack.faults

    faults = "\n".join(asyncio.run(attacked()))
    assert "status 500" in faults
    assert "another answer" in faults


def test_a_valid_request_is_an_object_of_parameters(valid: list[bytes]) -> None:
    bodies = [
        data.partition(b"\r\n\r\n")[2]
        for data in valid
        if b"application/json" in data and data.startswith(b"POST /translate ")
    ]
    assert len(bodies) > 10
    assert all({"q", "source", "target"} <= json.loads(body).keys() for body in bodies)
