"""deploy/: what its files say is true of this package. No image is built here."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import typer.main

from attent.cli.commands import expanded
from attent.cli.commands.serve import serve
from attent.server.settings import ServerSettings

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, each with its arguments on one line."""
    lines = [line for line in (DEPLOY / "Dockerfile").read_text("utf-8").splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def arguments_of(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


def check_command(arguments: list[str]) -> None:
    """Parse arguments of attent serve, which raises for an option that there is not."""
    app = typer.Typer()
    app.command()(expanded(serve))
    typer.main.get_command(app).make_context("serve", list(arguments))


def test_what_is_copied_is_there_and_what_is_installed_is_declared() -> None:
    copied = [name for rest in arguments_of("COPY") if not rest.startswith("--from") for name in rest.split()[:-1]]
    # scripts/wheels writes dist/
    assert copied == ["constraints.txt", "dist/*.whl"] and (ROOT / copied[0]).exists()
    installs = [shlex.split(rest) for rest in arguments_of("RUN") if "pip install" in rest]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {word for words in installs for word in words if word.startswith("torch==")} == {
        (ROOT / "constraints.txt").read_text("utf-8").split()[0]
    }
    assert installs[-1][-3:] == ["--find-links", "/dist", f"attent[serve]=={project['version']}"]
    assert "serve" in project["optional-dependencies"]


def test_the_server_is_started_as_it_is_called_and_as_nobody() -> None:
    (entry,), (command,) = arguments_of("ENTRYPOINT"), arguments_of("CMD")
    name, subcommand, *options = json.loads(entry)
    assert (name, subcommand) == ("attent", "serve")
    check_command([*options, *json.loads(command)])
    assert arguments_of("EXPOSE") == [str(ServerSettings.port)]
    assert arguments_of("USER") == ["10001:10001"]


def test_the_compose_file_starts_it_so_too() -> None:
    yaml = pytest.importorskip("yaml")
    settings = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    service = settings["services"]["attent"]
    check_command(service["command"])
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).samefile(DEPLOY / "Dockerfile")
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") and port.endswith(f":{ServerSettings.port}") for port in service["ports"])
    (volume,) = service["volumes"]
    assert volume.endswith(f":{service['command'][0]}:ro")
    # where requests by the published port come from
    (network,) = settings["networks"]["default"]["ipam"]["config"]
    assert service["command"][service["command"].index("--trusted-proxy") + 1] == network["gateway"]


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_tells_a_healthy_server(status: int, code: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, format: str, *values: object) -> None:
            """Write no log."""

    (check,) = arguments_of("HEALTHCHECK")
    interpreter, *words = json.loads(check.partition("CMD ")[2])
    assert interpreter == "python" and f":{ServerSettings.port}/" in words[-1]
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.timeout = 60
        words[-1] = words[-1].replace(f":{ServerSettings.port}/", f":{server.server_port}/")
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        done = subprocess.run([sys.executable, "-S", *words], capture_output=True, check=False, timeout=60)
        thread.join()
    assert done.returncode == code


def test_the_proxy_asks_the_server() -> None:
    settings = (DEPLOY / "nginx.conf").read_text("utf-8")
    assert re.findall(r"proxy_pass\s+(\S+);", settings) == [f"http://127.0.0.1:{ServerSettings.port}"]
    assert settings.count("{") == settings.count("}")
    assert set(re.findall(r"proxy_set_header\s+(\S+)", settings)) == {"Host", "X-Forwarded-For", "X-Forwarded-Proto"}
