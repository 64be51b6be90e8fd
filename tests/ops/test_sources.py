from __future__ import annotations

from pathlib import Path

from attent.ops.sources import digest


def test_every_name_and_every_byte_counts(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text("int f(int);")
    (tmp_path / "b.h").write_text("")
    digests = [digest(tmp_path)]
    (tmp_path / "a.cpp").write_text("int f(long);")
    digests.append(digest(tmp_path))
    (tmp_path / "a.cpp").rename(tmp_path / "c.cpp")
    digests.append(digest(tmp_path))
    (tmp_path / "notes.txt").write_text("no C++")
    assert len(set(digests)) == 3
    assert digest(tmp_path) == digests[-1]


def test_what_stands_in_one_file_does_not_pass_for_another(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("x")
    (tmp_path / "b.h").write_text("y")
    first = digest(tmp_path)
    (tmp_path / "a.h").write_text("xb.h 1\ny")
    (tmp_path / "b.h").unlink()
    assert digest(tmp_path) != first
