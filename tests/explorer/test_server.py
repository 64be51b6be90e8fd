from __future__ import annotations

import socket
import urllib.error
import urllib.request

import pytest
import torch

import attent
from attent.errors import ArgumentError, ShapeError
from attent.explorer.explorer import Explorer
from attent.explorer.server import ExploreServer, explore


def request_status(address: str, token: str = "") -> int:
    request = urllib.request.Request(address, headers={"X-Attent-Token": token})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_what_watch_saw_of_any_model() -> None:
    model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with attent.watch(model) as captured:
        model(torch.randn(1, 5, 8))
    with attent.explore(captured, list("abcde"), title="five") as exploring:
        assert request_status(f"http://127.0.0.1:{exploring.port}/") == 200
        assert request_status(f"http://127.0.0.1:{exploring.port}/api/scenes/0", exploring.token) == 200
        assert request_status(f"http://127.0.0.1:{exploring.port}/api/scenes/0") == 403
        assert exploring.address == f"http://127.0.0.1:{exploring.port}/#{exploring.token}"
        assert exploring.address in exploring._repr_html_()
    with pytest.raises(urllib.error.URLError):
        request_status(f"http://127.0.0.1:{exploring.port}/")


def test_each_start_has_a_token_of_its_own() -> None:
    with explore(torch.rand(3, 3)) as first, explore(torch.rand(3, 3)) as second:
        assert first.token != second.token
        assert first.port != second.port
        assert len(first.token) >= 32
        assert request_status(f"http://127.0.0.1:{first.port}/api/about", second.token) == 403


def test_what_it_cannot_listen_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as used, pytest.raises(ArgumentError, match="cannot be listened on"):
        ExploreServer(Explorer(), port=used.getsockname()[1])


def test_labels_must_fit() -> None:
    with pytest.raises(ShapeError, match="2 labels"):
        explore(torch.rand(3, 3), ["a", "b"])
