"""The description of the interface: valid, complete, and true of the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

Serve = Callable[..., TestClient]


def test_the_description_is_valid(serve: Serve) -> None:
    validator = pytest.importorskip("openapi_spec_validator", reason="openapi-spec-validator is not installed")
    spec = serve(alternatives_limit=3, char_limit=70).get("/spec").json()
    validator.validate(spec)
    properties = spec["components"]["schemas"]["Translate"]["properties"]
    assert (properties["alternatives"]["maximum"], properties["q"]["anyOf"][0]["maxLength"]) == (3, 70)
    assert properties["q"]["anyOf"][1]["maxItems"] == 50 and f"{12 * 70 * 50 + 2**16:,}" in spec["info"]["description"]
    unlimited = serve(char_limit=-1).get("/spec").json()["components"]["schemas"]["Translate"]["properties"]
    assert "maxLength" not in unlimited["q"]["anyOf"][0]


def test_every_route_is_described_and_nothing_else(serve: Serve) -> None:
    client = serve()
    described = {path: {*map(str.upper, methods)} for path, methods in client.get("/spec").json()["paths"].items()}
    app: Any = client.app
    routes = [route for route in app.app.routes if isinstance(route, Route) and route.methods]
    assert described == {route.path.replace(":str", ""): (route.methods or set()) - {"HEAD"} for route in routes}


def test_answers_are_as_described(serve: Serve) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with openapi-spec-validator")
    client = serve()
    spec = client.get("/spec").json()

    def check(method: str, path: str, **request: object) -> None:
        answer = client.request(method, path, **request)
        content = spec["paths"][path][method.lower()]["responses"][str(answer.status_code)]["content"]
        schema = content[answer.headers["content-type"].partition(";")[0]]["schema"]
        jsonschema.Draft202012Validator({**schema, "components": spec["components"]}).validate(answer.json())

    text = {"q": "A dog. Two men.", "source": "auto", "target": "de", "alternatives": 2, "alignment": True}
    check("POST", "/translate", json=text)
    check("POST", "/translate", json=text | {"q": ["a", "b"]})
    check("POST", "/translate", json={})
    check("POST", "/detect", json=text)
    check("POST", "/suggest", json={})
    check("POST", "/translate_file", files={"file": ("a.txt", b"...")}, data={"source": "en", "target": "de"})
    check("POST", "/translate_file", json={})
    for path in ("/languages", "/frontend/settings", "/health", "/ready", "/spec"):
        check("GET", path)
