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
    def forwarded(protocol: str, host: str, prefix: str) -> dict[str, str]:
        names = ("host", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-prefix")
        return dict(zip(names, ("inner", protocol, host, prefix), strict=True))

    right, wrong = forwarded("https", "example.org", "/mt/"), forwarded("javascript", "a/b", "/../x")
    assert address(right) == "http://inner"
    trusted = frozenset({"10.0.0.1"})
    assert address(right, trusted) == "https://example.org/mt"
    assert address(wrong, trusted) == "http://inner"
