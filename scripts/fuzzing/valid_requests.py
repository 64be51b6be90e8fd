"""Valid requests to a server with known answers."""

from __future__ import annotations

import random
import urllib.parse

from fuzzing.documents import well_formed
from fuzzing.live_server import json_request, request, upload

# Texts for the served run, and further parameters.
TEXTS = (
    "one two three",
    "four five. six seven.",
    "two <b>three</b> four",
    "seven one\nsix",
    "three & four {name}",
    "ｆive two",
    " ",
)
GETS = ("/languages", "/frontend/settings", "/health", "/ready", "/spec", "/")
FORM = "application/x-www-form-urlencoded"
# Number of documents, at the end of the valid requests.
VALID_DOCUMENTS = 6


def valid_requests() -> list[bytes]:
    """Return valid requests; each is first sent by itself to learn its answer."""
    pair: dict[str, object] = {"source": "en", "target": "de"}
    values: list[dict[str, object]] = [{"q": text} for text in TEXTS]
    values += [
        {"q": list(TEXTS[:4])},
        {"q": "one two three", "alternatives": 2},
        {"q": "six five four", "alignment": True},
    ]
    values.extend({"q": f"<p>one <b>two</b> {text}</p>", "format": "html"} for text in TEXTS[:3])
    values += [
        {"q": "one two", "source": "auto"},
        {"q": " ".join(TEXTS[:4]), "stream": True},
        {"q": "one two", "glossary": {"two": "zwei"}},
        {"q": "\U0001f600"},
    ]
    requests = [json_request(pair | value) for value in values]
    encoded = urllib.parse.urlencode(pair | {"q": "one two\r\nthree"})
    requests += [
        request("POST", "/translate", encoded.encode(), FORM),
        request("POST", f"/translate?{encoded}", kind="text/plain"),
    ]
    requests += [request("POST", "/detect", b"q=one+two", FORM), *(request("GET", path) for path in GETS)]
    dice = random.Random(0)
    documents = dict(well_formed(dice) for _ in range(40))
    return requests + [upload(content, f"a{ending}") for ending, content in sorted(documents.items())]
