from __future__ import annotations

import http.client
import socket
import urllib.error
import urllib.request

import pytest
import torch

import attent
from attent.errors import ArgumentError, ShapeError
from attent.explorer.explorer import Explorer
from attent.explorer.server import ExploreServer, explore
from attent.views.build_scene import build_scene


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
        assert exploring.is_local
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
    with pytest.raises(ArgumentError, match="cannot be listened on"):
        ExploreServer(Explorer(), host="no-such-name.invalid", allowed_hosts=["localhost"])


def test_a_host_that_others_reach_needs_a_name() -> None:
    for host in ("0.0.0.0", "::", "", "192.168.0.7", "example.org", "127.example.org", "127.0.0.1.nip.io"):
        message = f"^other machines can reach host '{host}': pass --allowed-host with the name that browsers may use$"
        with pytest.raises(ArgumentError, match=message):
            ExploreServer(Explorer(), host=host)
    wrong = [
        "",
        "*",
        "*.org",
        "http://localhost",
        "localhost:",
        "localhost:99999",
        "a b",
        "::1",
        "0.0.0.0",
        "[::]",
        "a/b",
    ]
    for name in wrong:
        with pytest.raises(ArgumentError, match=r"^--allowed-host must be one name or address"):
            ExploreServer(Explorer(), host="0.0.0.0", port=0, allowed_hosts=[name])


def test_in_a_container_only_the_allowed_names_are_answered() -> None:
    names, explorer = ["Box.example", "localhost:9000", "plain:80"], Explorer(scenes=[build_scene(torch.rand(3, 3))])
    with ExploreServer(explorer, host="0.0.0.0", port=0, allowed_hosts=names) as server:
        assert server.address == f"http://Box.example:{server.port}/#{server.token}"
        assert not server.is_local

        def status(host: str, token: str = server.token, **headers: str) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            connection.request("GET", "/api/about", headers={"Host": host, "X-Attent-Token": token} | headers)
            answer = connection.getresponse().status
            connection.close()
            return answer

        own, port = f"box.example:{server.port}", server.port
        for host in (own, "localhost:9000", "plain", "plain:80"):
            assert status(host) == status(host, Origin=f"http://{host}") == 200
        others = [f"{name}:{port}" for name in ("127.0.0.1", "0.0.0.0", "localhost", "evil.example")]
        for host in ("box.example", "localhost", *others):
            assert status(host) == 421
        assert status(own, Origin="http://evil.example") == 403
        assert status(own, token="wrong") == status(own, **{"Sec-Fetch-Site": "cross-site"}) == 403


def test_labels_must_fit() -> None:
    with pytest.raises(ShapeError, match="2 labels"):
        explore(torch.rand(3, 3), ["a", "b"])
