"""The endpoints below /v1."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

Serve = Callable[..., TestClient]
ASK = {"model": "en-de", "input": "a dog runs", "target_language": "de"}


def test_a_text_and_a_list(serve: Serve, translators: dict) -> None:
    client, expected = serve(), translators["en:de"].translate(["a dog runs", "two men"])
    answer = client.post("/v1/translations", json=ASK | {"input": ["a dog runs", "two men"]}).json()
    assert answer == {
        "object": "list",
        "data": [
            {"object": "translation", "index": index, "text": text, "source_language": "en", "model": "en-de"}
            for index, text in enumerate(expected)
        ],
        "target_language": "de",
    }
    assert client.post("/v1/translations", json=ASK).json()["data"] == answer["data"][:1]


def test_the_language_is_detected_without_model_and_source(serve: Serve) -> None:
    french = "les chiens courent dans la rue avec les enfants"
    data = serve().post("/v1/translations", json={"input": french, "target_language": "de"}).json()["data"]
    assert (data[0]["source_language"], data[0]["model"]) == ("fr", "fr-de")
    named = (
        serve()
        .post("/v1/translations", json={"input": french, "target_language": "de", "source_language": "en"})
        .json()["data"]
    )
    assert named[0]["model"] == "en-de"
    # a text of the target's language passes no model
    german = "die Hunde laufen durch die Straßen und die Kinder spielen"
    data = serve().post("/v1/translations", json={"input": german, "target_language": "de"}).json()["data"]
    assert (data[0]["text"], data[0]["model"]) == (german, None)


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


@pytest.mark.parametrize(
    ("change", "status", "kind", "message"),
    [
        ({"input": ""}, 400, "invalid_request_error", "Invalid request: missing input parameter"),
        (
            {"input": [1]},
            400,
            "invalid_request_error",
            "Invalid request: input parameter is not a string or a list of strings",
        ),
        ({"target_language": None}, 400, "invalid_request_error", "Invalid request: missing target_language parameter"),
        ({"model": None, "target_language": "zz"}, 400, "invalid_request_error", "zz is not supported"),
        ({"model": "gpt"}, 404, "not_found_error", "The model gpt does not exist: GET /v1/models lists those that do"),
        (
            {"target_language": "en"},
            400,
            "invalid_request_error",
            "Invalid request: the model en-de translates en to de",
        ),
        ({"stream": "perhaps"}, 400, "invalid_request_error", "Invalid request: stream parameter is not true or false"),
    ],
)
def test_errors_are_objects(serve: Serve, change: dict, status: int, kind: str, message: str) -> None:
    answer = serve().post("/v1/translations", json=ASK | change)
    assert (answer.status_code, answer.json()["error"]) == (
        status,
        {"message": message, "type": kind, "param": None, "code": None},
    )
    assert serve().get("/v1/none").json()["error"]["type"] == "not_found_error"


def test_a_bearer_token_is_an_api_key(serve: Serve, tmp_path) -> None:
    (tmp_path / "keys").write_text("secret 2\n")
    client = serve(api_keys_file=tmp_path / "keys", require_api_key=True)
    assert client.post("/v1/translations", json=ASK).json()["error"]["type"] == "invalid_request_error"
    wrong = client.post("/v1/translations", json=ASK, headers={"authorization": "Bearer wrong"})
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (403, "permission_error")
    codes = [
        client.post("/v1/translations", json=ASK, headers={"authorization": "Bearer secret"}).status_code
        for _ in range(3)
    ]
    assert codes == [200, 200, 429]
