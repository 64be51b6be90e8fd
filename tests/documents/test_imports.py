"""Documents are read and written without PyTorch."""

from __future__ import annotations

import subprocess
import sys

MODULES = ("attent.documents", "attent.documents.pipeline", "attent.text.sentences", "attent.errors")


def test_no_torch_comes_along() -> None:
    read = 'attent.documents.read_document(b"<p>a <b>b</b>", ".html")'
    program = f"import sys, {', '.join(MODULES)}\n{read}\nprint(*sorted({{'numpy', 'torch'}} & sys.modules.keys()))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
