"""The endpoints below /v1."""

from __future__ import annotations

import json
from collections.abc import Callable

from starlette.testclient import TestClient

Serve = Callable[..., TestClient]
ASK = {"model": "en-de", "input": "a dog runs", "target_language": "de"}


def test_deltas_are_the_whole_text(serve: Serve) -> None:
    client, ask = serve(), ASK | {"input": ["A dog. Two men.  A cat!", "a bird"]}
    answer = client.post("/v1/translations", json=ask | {"stream": True})
    *deltas, done = [json.loads(part.removeprefix("data: ")) for part in answer.text.split("\n\n")[:-1]]
    whole = client.post("/v1/translations", json=ask).json()
    assert done == {"type": "translation.done", **whole}
    assert {event["type"] for event in deltas} == {"translation.text.delta"}
    assert ["".join(event["delta"] for event in deltas if event["index"] == index) for index in range(2)] == [
        item["text"] for item in whole["data"]
    ]


def test_models_are_named_by_their_languages(serve: Serve) -> None:
    models = serve().get("/v1/models").json()
    assert models["object"] == "list"
    assert [model["id"] for model in models["data"]] == ["en-de", "fr-de", "de-en"]
    assert (models["data"][0]["object"], models["data"][0]["source_language"]) == ("model", "en") and models["data"][0][
        "created"
    ] > 0
