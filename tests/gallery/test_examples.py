from __future__ import annotations

import sys

import pytest
from gallery.examples import example


def test_an_example_runs_quietly_and_leaves_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = sys.argv
    assert example("registrar")["MAJORS"]["Ada Quill"] == "mathematics"
    assert capsys.readouterr().out == ""
    assert sys.argv is arguments
