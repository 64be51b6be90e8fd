"""The address in answers: a header is believed only as far as it goes."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from attent.server.documents import public_address


def address(headers: dict[str, str], trusted: frozenset[str] = frozenset()) -> str:
    scope = {
        "type": "http",
        "scheme": "http",
        "path": "/",
        "query_string": b"",
        "server": ("10.0.0.7", 5000),
        "client": ("10.0.0.1", 7),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
    }
    return public_address(Request(scope), trusted)


@pytest.mark.parametrize("host", ["example.org", "localhost:5000", "127.0.0.1:80", "[::1]:5000"])
def test_a_host_is_taken(host: str) -> None:
    assert address({"host": host}) == f"http://{host}"


@pytest.mark.parametrize(
    "host", ["", "a b", "a/b", "x@evil.org", "evil.org#", 'a"', "a\r\nb", "a:b", "-a", "a" * 300, "a:123456", "é.org"]
)
def test_what_is_no_host_is_not(host: str) -> None:
    assert address({"host": host}) == "http://10.0.0.7:5000"


def test_a_proxy_is_believed_where_it_is_trusted() -> None:
    forwarded = {
        "host": "inner",
        "x-forwarded-proto": "https",
        "x-forwarded-host": "example.org",
        "x-forwarded-prefix": "/mt/",
    }
    assert address(forwarded) == "http://inner"
    trusted = frozenset({"10.0.0.1"})
    assert address(forwarded, trusted) == "https://example.org/mt"
    wrong = {
        "host": "inner",
        "x-forwarded-proto": "javascript",
        "x-forwarded-host": "a/b",
        "x-forwarded-prefix": "/../x",
    }
    assert address(wrong, trusted) == "http://inner"
