"""The process of a document: by itself, without PyTorch, within its limits."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from attent.server.document_worker import (
    DATA,
    END,
    ERROR,
    MARKED,
    MEMORY,
    NICENESS,
    PLAIN,
    SECONDS,
    read_frame,
    write_frame,
)

PROGRAM = """
import os, sys
from attent.server import document_worker
document_worker.main()
print(*sorted({"torch", "numpy", "starlette"} & sys.modules.keys()), file=sys.stderr)
"""
LIMITS = """
import os, resource
limits = (resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0] for name in ("AS", "CPU", "FSIZE", "CORE"))
print(*limits, os.nice(0), file=sys.stderr)
try:
    with open(os.environ["PYTHON_TEST_FILE"], "w") as file:
        file.write("x")
except OSError:
    print("no file", file=sys.stderr)
"""


def serve(
    content: bytes, *after: bytes, program: str = PROGRAM, **environment: str
) -> tuple[list[tuple[bytes, bytes]], list[str]]:
    """Return the frames that a process answers with, after the one that it has started, and the lines of its log."""
    request = io.BytesIO()
    for payload in (b".html", content):
        write_frame(request, DATA, payload)
    write_frame(request, END)
    for payload in after:
        write_frame(request, DATA, payload)
    write_frame(request, END)
    result = subprocess.run(
        [sys.executable, "-c", program],
        input=request.getvalue(),
        capture_output=True,
        check=True,
        env={**os.environ, **environment},
    )
    answer, frames = io.BytesIO(result.stdout), list[tuple[bytes, bytes]]()
    while answer.tell() < len(result.stdout):
        frames.append(read_frame(answer, 2**20))
    assert frames[0] == (DATA, b"")
    return frames[1:], result.stderr.decode().splitlines()


def test_a_document_is_cut_and_put_together_without_torch() -> None:
    content = b"<p>A dog runs. Two <b>men</b> sit.</p><p>It rains.</p>"
    frames, modules = serve(content, b"read en")
    sentences = f"{MARKED}A dog runs.\n{MARKED}Two men sit.\n{PLAIN}It rains.".encode()
    assert frames == [(DATA, b"A dog runs. Two men sit.\nIt rains."), (DATA, sentences), (END, b"")]
    assert modules == [""]
    # men, the second word of the second sentence, is the first of its translation
    rows = [["Ein Hund.", []], ["hommes assis", [4, 7, 0, 6]], ["Regen", []]]
    frames, modules = serve(content, b"render en", json.dumps(rows[:2]).encode(), json.dumps(rows[2:]).encode())
    assert frames[1:] == [(DATA, b"<p>Ein Hund. <b>hommes</b> assis</p><p>Regen</p>"), (END, b"")]
    assert modules == [""]


def test_errors_are_said_and_faults_without_the_text() -> None:
    assert serve(b"\xff")[0] == [(ERROR, b"the file is not UTF-8: invalid start byte at byte 0")]
    fault = "document_worker.read_document = lambda content, ending: {}[content]\ndocument_worker.main()"
    ((kind, message),) = serve(b"secret", program=PROGRAM.replace("document_worker.main()", fault))[0]
    assert kind == b"F" and message.startswith(b"KeyError at ") and b"secret" not in message


def test_where_the_system_has_no_limits_the_process_works_without() -> None:
    windows = 'import sys\nsys.modules["resource"] = None\nfrom attent import system\nsystem.IS_LINUX = False\n'
    frames, modules = serve(b"a dog", b"read en", program=windows + PROGRAM)
    assert (frames[-1], modules) == ((END, b""), [""])


def test_the_process_has_limits(tmp_path: Path) -> None:
    pytest.importorskip("resource")
    _, lines = serve(b"a dog", b"read en", program=PROGRAM + LIMITS, PYTHON_TEST_FILE=str(tmp_path / "a"))
    memory, seconds, size, core, nice = map(int, lines[1].split())
    assert (memory, seconds, size, core) == (MEMORY, SECONDS, 0, 0)
    assert nice >= NICENESS
    assert lines[2] == "no file"
    assert not (tmp_path / "a").exists() or not (tmp_path / "a").read_text()
