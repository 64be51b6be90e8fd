from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from attent.explorer import explorer as explorer_file
from attent.explorer.explorer import Explorer
from attent.search.settings import SearchSettings
from attent.tasks.translation.translator import Translator
from attent.text.tokenizer import UNK
from attent.views.scene import Scene


def numbers(answer: Any) -> tuple[torch.Tensor, dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    about = json.loads(answer.headers["x-attent-part"])
    values = np.frombuffer(answer.content, "<f4").reshape(about["height"], about["width"])
    return torch.from_numpy(values.copy()), about


def events(answer: Any) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n\n") if line]


def test_what_there_is(client: TestClient) -> None:
    about = client.get("/api/about").json()
    assert [(run["name"], run["task"]) for run in about["runs"]] == [("dates", "translate"), ("blanks", "fill-mask")]
    assert (about["scenes"], about["text"]) == ([0], "abc")
    described = client.get("/api/scenes/0").json()
    assert described["title"] == "300 places"
    assert described["groups"][0]["height"] == 300


@pytest.mark.parametrize("head", ["mean", 1])
def test_the_numbers_of_a_map(client: TestClient, scene: Scene, head: str | int) -> None:
    dense = scene.groups[0].layers[0].weights.dense()[0]
    expected = dense.mean(0) if head == "mean" else dense[head]
    note = "mean over 2 heads" if head == "mean" else ""

    def get(part: str, **parameters: object) -> tuple[torch.Tensor, dict[str, Any]]:
        choice = {"group": "cross", "layer": 0, "head": head}
        return numbers(client.get(f"/api/scenes/0/{part}", params=choice | parameters))

    values, about = get("row", query=7)
    torch.testing.assert_close(values[0], expected[7])
    assert about == {"height": 1, "width": 280, "exact": True, "note": note}
    torch.testing.assert_close(get("column", key=3)[0][0], expected[:, 3])
    values, about = get("tile", level=0, y=1, x=1)
    torch.testing.assert_close(values, expected[256:, 256:])
    assert about["note"] == note
    values, about = get("tile", level=1, y=0, x=0, how="max")
    torch.testing.assert_close(values, torch.nn.functional.max_pool2d(expected[None], 2)[0])
    assert about["note"] == ", ".join(filter(None, ["largest of 2 x 2 weights", note]))
    torch.testing.assert_close(
        get("thumbnail")[0], torch.nn.functional.avg_pool2d(expected[None], 8, ceil_mode=True)[0]
    )


def test_the_figures_of_each_head(client: TestClient, scene: Scene) -> None:
    weights = scene.groups[0].layers[0].weights
    payload = client.get("/api/scenes/0/summary", params={"group": "cross"}).json()
    assert (len(payload["figures"]), payload["every"]) == (1, 1)
    (heads,) = payload["figures"]
    assert [head["entropy"] for head in heads] == pytest.approx(weights.entropy()[0].mean(-1).tolist(), rel=1e-4)
    assert [head["first"] for head in heads] == pytest.approx(weights[0, :, :, 0].mean(-1).tolist(), rel=1e-4)


def test_a_translation_grows_token_by_token(client: TestClient, translator: Translator) -> None:
    query_parameters = {"group": "cross", "layer": 1, "head": "mean"}
    received = events(client.post("/api/translate", json={"text": "abcd", "where": query_parameters}))
    assert [event["kind"] for event in received] == ["start", *["token"] * (len(received) - 2), "end"]
    assert received[0]["source"] == list("abcd")
    assert received[-1]["text"] == translator.translate(["abcd"])[0]
    tokens = [event["said"]["token"] for event in received[1:-1]]
    assert tokens[:-1] == received[-1]["tokens"]
    number = received[-1]["scene"]
    for step, event in enumerate(received[1:-1]):
        values, _ = numbers(client.get(f"/api/scenes/{number}/row", params={**query_parameters, "query": step}))
        assert event["weights"] == pytest.approx(values[0].tolist(), abs=1e-5)


def test_from_an_edited_prefix_the_model_goes_on(client: TestClient, translator: Translator) -> None:
    first = events(client.post("/api/translate", json={"text": "abcd"}))
    second = first[2]["best"][1]["token"]
    prefix = [first[1]["said"]["token"], second]
    changed = events(client.post("/api/translate", json={"text": "abcd", "prefix": prefix}))
    assert [event["said"]["token"] for event in changed[1:3]] == prefix
    assert [event["forced"] for event in changed[1:4]] == [True, True, False]
    typed = events(client.post("/api/translate", json={"text": "abcd", "more": "65"}))
    assert typed[-1]["text"] == translator.translate(["abcd"], prefixes=["65"])[0]


def test_a_beam_finds_what_the_search_finds_and_goes_on_from_any_prefix(
    client: TestClient, translator: Translator
) -> None:
    received = events(client.post("/api/translate", json={"text": "abcd", "beam": 3}))
    assert received[-1]["text"] == translator.translate(["abcd"], SearchSettings(beam=3))[0]
    received = events(client.post("/api/translate", json={"text": "abcd", "beam": 3, "prefix": [UNK, 6]}))
    assert received[-1]["tokens"][:2] == [UNK, 6]
    assert [event["forced"] for event in received[1:4]] == [True, True, False]


def test_what_goes_wrong_late_is_said(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object, **options: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(explorer_file, "_last_row", fails)
    received = events(client.post("/api/translate", json={"text": "abcd"}))
    assert received[-1] == {"kind": "error", "error": "unexpected RuntimeError: out of memory"}


def test_half_of_a_pair_of_surrogates_is_no_text(explorer: Explorer, client: TestClient, scene: Scene) -> None:
    (group,) = scene.groups
    texts = {name: replace(text, labels=("\ud83d", *text.labels[1:])) for name, text in scene.texts.items()}
    number = explorer.scenes.add(replace(scene, texts=texts))
    described = client.get(f"/api/scenes/{number}").json()
    assert described["texts"][group.rows]["labels"][0] == "?"


def test_blanks_are_guessed(client: TestClient) -> None:
    payload = client.post("/api/fill", json={"run": 1, "text": "the dog was [MASK] ."}).json()
    assert [len(blank["guesses"]) for blank in payload["blanks"]] == [5]
    described = client.get(f"/api/scenes/{payload['scene']}").json()
    assert described["texts"]["tokens"]["labels"][0].strip() == "the"
    # a text without a blank is only shown
    payload = client.post("/api/fill", json={"run": 1, "text": "the bird was ."}).json()
    assert (payload["blanks"], payload["unknown"]) == ([], ["bird"])
    assert client.get(f"/api/scenes/{payload['scene']}").json()["groups"][0]["height"] == 4


REFUSED = [
    ("translate", {"text": ""}, "the text is empty"),
    ("translate", {"text": "a", "prefix": [99]}, "a prefix is of ids"),
    ("translate", {"text": "a", "run": 1}, "blanks is for the task fill-mask, not for translate"),
    ("translate", {"text": "a", "run": 2}, "run must be from 0 to 1, got 2"),
    ("translate", {"text": "a" * 100_000}, "100,000 tokens, more than the limit of 32,768"),
    ("translate", {"text": 7}, "text: Input should be a valid string"),
    ("translate", {"txt": "a"}, "text: Field required"),
    ("translate", {"text": "a", "best": 10**9}, "best: Input should be less than or equal to 50"),
    ("fill", {"run": 1, "text": ""}, "a text without tokens"),
    ("fill", {"run": 1, "text": "dog " * 100_000}, "tokens, more than the limit of 32,768"),
    ("classify", {"run": 1, "text": "a"}, "blanks is for the task fill-mask, not for classify"),
]
MALFORMED = [b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"text": NaN}']


def test_requests_that_cannot_be_answered_are_refused_in_one_line(client: TestClient) -> None:
    for path, body, message in REFUSED:
        answer = client.post(f"/api/{path}", json=body)
        assert answer.status_code == 400
        assert message in answer.json()["error"] and "\n" not in answer.json()["error"]
    for path in ("translate", "fill", "classify"):
        for content in MALFORMED:
            answer = client.post(f"/api/{path}", content=content, headers={"Content-Type": "application/json"})
            assert answer.status_code == 400 and answer.json()["error"], content[:10]


def test_any_text_is_read(client: TestClient) -> None:
    for text in ("e", "👩‍👩‍👧", "<script>alert(1)</script>", "\x00", "ab\u202ecd", "א ב"):
        received = events(client.post("/api/translate", json={"text": text}))
        assert received[0]["source"] == list(text)
        assert received[-1]["kind"] == "end"


ROW, TILE = "/api/scenes/0/row?", "/api/scenes/0/tile?group=cross&layer=0&head=0&"
MISSING = [
    ("/api/scenes/99", 400, "view 99 is unknown"),
    ("/api/scenes/x", 404, "Not Found"),
    (f"/api/scenes/{'9' * 5000}", 404, "Not Found"),
    (f"/api/scenes/{'9' * 5000}/row?group=cross&layer=0&head=0&query=0", 404, "Not Found"),
    ("/api/nothing", 404, "Not Found"),
    ("/api/translate", 405, "Method Not Allowed"),
    (f"{ROW}group=cross&layer=0&head=0&query=300", 400, "query must be from 0 to 299, got 300"),
    (f"{ROW}group=cross&layer=0&head=0&query=-1", 400, "query: Input should be greater than or equal to 0"),
    (f"{ROW}group=cross&layer=0&head=9&query=0", 400, "head must be from 0 to 1, or mean, got 9"),
    (f"{ROW}group=cross&layer=4&head=0&query=0", 400, "layer must be from 0 to 0, got 4"),
    (f"{ROW}group=other&layer=0&head=0&query=0", 400, "no group 'other'"),
    (f"{TILE}level=9&y=0&x=0", 400, "level must be from 0 to 1, got 9"),
    (f"{TILE}level=0&y=0&x=0&how=best", 400, "how: Input should be 'mean' or 'max'"),
    ("/web/explore.py", 404, "Not Found"),
    ("/web/..%2f..%2ferrors.py", 404, "Not Found"),
]


def test_missing_addresses_are_refused(client: TestClient) -> None:
    for address, status, message in MISSING:
        answer = client.get(address)
        assert answer.status_code == status and message in answer.json()["error"], address


def test_what_nobody_foresaw_is_one_line_too(
    client: TestClient, explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(text: object) -> None:
        raise RuntimeError("a reason")

    monkeypatch.setattr(explorer, "fill", fails)
    answer = client.post("/api/fill", json={"text": "a"})
    assert (answer.status_code, answer.json()) == (500, {"error": "unexpected RuntimeError: a reason"})


def test_who_asks_while_the_server_ends_may_ask_another(client: TestClient, explorer: Explorer) -> None:
    explorer.close()
    answer = client.post("/api/fill", json={"text": "a", "run": 1})
    assert (answer.status_code, answer.json()) == (503, {"error": "the server is shutting down"})


def test_the_page_and_its_files(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert client.get("/web/explore.js").headers["content-type"].startswith("text/javascript")
    assert client.get("/web/explore.css").headers["content-type"].startswith("text/css")
