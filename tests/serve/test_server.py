from __future__ import annotations

import socket
import urllib.error
import urllib.request

import pytest
import torch

import attent
from attent.errors import ArgumentError, ShapeError
from attent.serve.explorer import Explorer
from attent.serve.server import ExploreServer, explore


def asked(address: str, token: str = "") -> int:
    request = urllib.request.Request(address, headers={"X-Attent-Token": token})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_what_watch_saw_of_any_model() -> None:
    model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with attent.watch(model) as seen:
        model(torch.randn(1, 5, 8))
    with attent.explore(seen, list("abcde"), title="five") as exploring:
        assert asked(f"http://127.0.0.1:{exploring.port}/") == 200
        assert asked(f"http://127.0.0.1:{exploring.port}/api/scenes/0", exploring.token) == 200
        assert asked(f"http://127.0.0.1:{exploring.port}/api/scenes/0") == 403
        assert exploring.address == f"http://127.0.0.1:{exploring.port}/#{exploring.token}"
        assert exploring.address in exploring._repr_html_()
        assert exploring.is_local
    with pytest.raises(urllib.error.URLError):
        asked(f"http://127.0.0.1:{exploring.port}/")


def test_each_start_has_a_token_of_its_own() -> None:
    with explore(torch.rand(3, 3)) as one, explore(torch.rand(3, 3)) as other:
        assert one.token != other.token
        assert one.port != other.port
        assert len(one.token) >= 32
        assert asked(f"http://127.0.0.1:{one.port}/api/about", other.token) == 403


def test_what_it_cannot_listen_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ArgumentError, match="cannot be listened on"):
        ExploreServer(Explorer(), port=taken.getsockname()[1])
    with pytest.raises(ArgumentError, match=r"the one name or address that browsers ask by, got '0\.0\.0\.0'"):
        ExploreServer(Explorer(), host="0.0.0.0")
    with pytest.raises(ArgumentError, match="cannot be listened on"):
        ExploreServer(Explorer(), host="no-such-name.invalid")


def test_labels_must_fit() -> None:
    with pytest.raises(ShapeError, match="2 labels"):
        explore(torch.rand(3, 3), ["a", "b"])
