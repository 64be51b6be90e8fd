"""What the harness draws depends on the seed alone, and what it must find is found, in answers and run folders."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fuzzing import documents, replacements, requests
from fuzzing.exchanges import Exchange, draw
from fuzzing.kills import compared
from fuzzing.live_server import COMPLAINT, Answer
from fuzzing.mutators import mutate_file, replace_file
from fuzzing.valid_requests import valid_requests

RIGHT = Answer(200, False, b'{"translatedText": "eins"}')
VALID, MARKUP = Exchange("valid", (), (0,)), Exchange("markup", ())


def test_draws_depend_on_the_seed_alone(tmp_path: Path) -> None:
    valid, file = valid_requests(), tmp_path / "config.json"

    def drawn(seed: int) -> list[Any]:
        file.write_text(json.dumps({"model": {"width": 16, "score": "dot"}, "files": ["inputs.json"]}))
        mutation = mutate_file(file, random.Random(seed))
        assert mutation.culprits[0] == "config.json"
        parts = [documents.well_formed(random.Random(seed)), documents.spoilt(random.Random(seed))]
        return [mutation, file.read_bytes(), parts, draw(5, seed, valid)]

    rows = [drawn(seed) for seed in range(60)]
    assert rows == [drawn(seed) for seed in range(60)]
    assert len({row[1] for row in rows}) > 40
    exchanges = [draw(5, number, valid) for number in range(300)]
    kinds = Counter(exchange.kind.split(",")[0] for exchange in exchanges)
    assert len(kinds) >= 17 and kinds["valid"] > 40
    for exchange in exchanges:
        sent = b"".join(piece for piece in exchange.pieces if isinstance(piece, bytes))
        # nothing that one exchange sends fills a memory
        assert len(sent) < 16 * 2**20
        if exchange.kind in ("valid", "valid, in pieces"):
            assert sent == valid[exchange.expected[0]]


def test_a_replaced_file_is_no_write_through_a_link(tmp_path: Path) -> None:
    canary, run = tmp_path / "canary", tmp_path / "case" / "run"
    (canary / "photos").mkdir(parents=True)
    (canary / "notes.txt").write_text("untouched")
    run.mkdir(parents=True)
    kinds = {replace_file(run / "log.jsonl", canary, random.Random(seed)).text for seed in range(100)}
    assert len(kinds) == 9
    assert (canary / "notes.txt").read_text() == "untouched"


@pytest.mark.parametrize(
    ("exchange", "answers", "problem", "expected"),
    [
        (VALID, [RIGHT], "", ""),
        (VALID, [RIGHT._replace(body=b'{"translatedText": "zwei"}')], "", "another answer"),
        (VALID._replace(expected=(0, 0)), [RIGHT], "EOFError", "no answer to a valid request"),
        (VALID, [RIGHT._replace(status=503)], "", ""),
        (MARKUP, [RIGHT._replace(status=507)], "", "status 507"),
        (MARKUP, [], "TimeoutError", ""),
        (MARKUP, [Answer(400, False, b"a" * 5000)], "", "an error of 5000 bytes"),
        (MARKUP._replace(statuses=frozenset((403,))), [RIGHT], "", "status 200"),
    ],
)
def test_faults_of_an_answer_are_found(exchange: Exchange, answers: list[Answer], problem: str, expected: str) -> None:
    server: Any = SimpleNamespace(complaints=[], last_line="")
    attack = requests.Attack(server, 3)
    attack._expected = [RIGHT]
    attack._judge(17, exchange, answers, problem)
    assert bool(attack.faults) == bool(expected)
    assert expected in "".join(attack.faults)
    assert all("--seed 3 --case 17" in fault for fault in attack.faults)


def test_faults_of_a_server_are_found() -> None:
    changed = "run has changed, and cannot be loaded: "
    for line in ("Traceback (most recent call last):", "RuntimeError: closed", f"{changed}unexpected KeyError: 'a'"):
        assert COMPLAINT.search(line)
    assert not COMPLAINT.search(f"{changed}Error while deserializing header")
    server: Any = SimpleNamespace(is_running=True, megabytes=100.0, descriptors=20)
    assert requests.settled(server, 95.0, 20, seconds=0) == []
    assert requests.settled(server, 80.0, 10, seconds=0) == ["memory 100 MB, 80 before", "20 descriptors, 10 before"]


@pytest.mark.parametrize(
    ("texts", "allowed", "expected"),
    [
        ("ab", {0}, ""),
        ("cd", {0, 1}, ""),
        ("cd", {0}, "an answer of run 1, but [0] are"),
        ("ad", {0, 1}, "an answer of no whole run"),
    ],
)
def test_an_answer_must_be_of_one_run(texts: str, allowed: set[int], expected: str) -> None:
    asking = replacements.Asking(None, [["a", "b"], ["c", "d"]])  # pyright: ignore[reportArgumentType]
    asking.allowed = allowed
    asking.judge(Answer(200, False, json.dumps({"translatedText": list(texts)}).encode()), allowed)
    assert bool(asking.faults) == bool(expected)
    assert expected in "".join(asking.faults)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_runs_are_replaced_and_spoilt_as_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacements, "PAUSES", (0.0,) * 6)
    runs = [tmp_path / name / "run" for name in ("service", "training-0", "training-1")]
    for run in runs:
        run.mkdir(parents=True)
        for name in ("config.json", "model.safetensors", "source.tokenizer.json", "target.tokenizer.json"):
            (run / name).write_text(f"{run.parent.name} {name}\n" * 50)
    before = contents(runs[1])
    replacing = replacements.Replacing(runs[0], random.Random(0))
    for way in ("the folder renamed", "a link", "each file renamed", "each file written in place", "a link", "cp"):
        for run in runs[2:0:-1]:
            replacing.ways[way](run)
            assert contents(runs[0]) == contents(run)
    kinds = set()
    for _ in range(40):
        broken, kind = replacing.spoil(runs[1])
        name, _, kind = kind.partition(" ")
        kinds.add(kind)
        assert contents(broken).get(name) != before[name]
        assert all(contents(broken)[kept] == content for kept, content in before.items() if kept != name)
    assert len(kinds) == 5
    assert contents(runs[1]) == before


def test_runs_differ_by_all_but_the_clock(tmp_path: Path) -> None:
    def write(name: str, weights: bytes = b"weights", loss: float = 1.5, seconds: float = 2.0) -> Path:
        checkpoint = tmp_path / name / "checkpoints" / "00000005"
        checkpoint.mkdir(parents=True)
        (tmp_path / name / "model.safetensors").write_bytes(weights)
        (checkpoint / "state.json").write_text(json.dumps({"update": 5, "seconds": seconds, "log": int(seconds)}))
        record = {"update": 5, "loss": loss, "seconds": seconds}
        (tmp_path / name / "log.jsonl").write_text(json.dumps(record) + "\n")
        return tmp_path / name

    first = write("first")
    assert compared(first, write("clock", seconds=3.0)) == []
    second = write("second", b"weighs", 1.25, 3.0)
    (second / "left").touch()
    assert compared(first, second) == [f"differs: {name}" for name in ("left", "log.jsonl", "model.safetensors")]
