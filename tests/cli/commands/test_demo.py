from __future__ import annotations

import re
from pathlib import Path

import pytest

from attent.tasks import settings

LAST_LINE = re.compile(r"exact match \d+\.\d % held-out dates, \d+\.\d % held-out combinations")


@pytest.fixture(autouse=True)
def small(settings_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo, with settings that take less than a second, and few dates.

    A model that has learnt nothing answers at length.
    """
    for name in ("DATES", "DRAWN"):
        monkeypatch.setattr(f"attent.cli.commands.demo.{name}", ("fr | 3 mars 2026",))
    monkeypatch.setattr(settings, "demo", lambda: settings.read(settings_file))


@pytest.mark.slow
def test_the_demo_ends_in_what_it_has_reached(attent, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    out = tmp_path / "demo"
    done = attent("demo", "--out", out, "--date", "en | 5/6/1999", "--seed", 2)
    assert done.code == 0
    assert LAST_LINE.fullmatch(done.out[-1])
    assert any(line.startswith("en | 5/6/1999") and "→" in line for line in done.out)
    assert any("cross_attention" in line for line in done.out)
    assert f'  attent translate {out} "it | 3 marzo 2026"' in done.out
    pictures = sorted((out / "pictures").iterdir())
    assert len(pictures) == 2
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)


def test_its_own_folder_is_made_anew_without_pictures_where_matplotlib_is_missing(
    attent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attent.errors import AttentError

    def missing(*arguments: object) -> None:
        raise AttentError("pictures need matplotlib")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("attent.views.picture.picture", missing)
    for _ in range(2):
        done = attent("demo")
        assert done.code == 0 and "no pictures: pictures need matplotlib" in done.err
        assert LAST_LINE.fullmatch(done.out[-1])
    assert (tmp_path / "runs" / "dates-demo" / "config.json").is_file()
    done = attent("demo", "--out", Path("runs") / "dates-demo")
    assert done.code == 2 and "already exists" in done.err[-1]
