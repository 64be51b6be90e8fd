"""Results in a file: killed at any moment and resumed, it is the file of a command that nobody killed."""

from pathlib import Path

import pytest

from attent.errors import ArgumentError, DataError, RunError
from attent.runs.results import ResultFile

LINES = [f"line {number} \r with \x1b" for number in range(11)]
SETTINGS = {"beam": "1"}


def fill(
    path: Path, lines: list[str], *, resume: bool = True, stop: int = 0, settings: dict[str, str] = SETTINGS
) -> list[int]:
    """Write the capitals of lines in chunks of three, up to so many writes, as if killed then.

    Return the lines that were read.
    """
    read = list[int]()
    with ResultFile(path, settings, resume=resume) as results:
        pending = list[str]()
        for number, line in results.remaining(iter(lines)):
            read.append(number)
            results.write(line.upper())
            pending.append(line)
            if len(read) == stop:
                results._file.flush()  # pyright: ignore[reportPrivateUsage]
                return read
            if len(pending) == 3:
                results.commit(pending, is_complete=True)
                pending = []
        results.commit(pending, is_complete=True)
        results.finish()
    return read


def test_resumed_after_any_line_the_file_is_the_same(tmp_path: Path) -> None:
    fill(tmp_path / "whole", LINES, resume=False)
    expected = (tmp_path / "whole").read_bytes()
    assert expected.count(b"\n") == len(LINES) and b"\\u001b" in expected
    for stop in range(1, len(LINES) + 1):
        path = tmp_path / f"killed{stop}"
        fill(path, LINES, resume=False, stop=stop)
        assert not path.exists()
        # and killed again, in the chunk that follows
        second = fill(path, LINES, stop=2)
        read = fill(path, LINES) if not path.exists() else second
        # the chunks that were whole are not computed again
        assert read[0] == (stop - 1) // 3 * 3
        assert path.read_bytes() == expected
    assert {file.suffix for file in tmp_path.iterdir()} == {""}


def test_other_settings_and_other_lines_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "out"
    fill(path, LINES, stop=7)
    draft = path.with_name("out.part").read_bytes()
    with pytest.raises(ArgumentError, match=r"out\.part is from an unfinished command: --resume continues it"):
        fill(path, LINES, resume=False)
    with pytest.raises(ArgumentError, match="is from another run or from other options"):
        fill(path, LINES, settings={"beam": "2"})
    for lines in (["another", *LINES[1:]], LINES[:5]):
        with pytest.raises(ArgumentError, match="was made from other lines"):
            fill(path, lines)
    # only what no note counts is cut off
    assert draft.startswith(path.with_name("out.part").read_bytes())
    fill(path, LINES)
    with pytest.raises(ArgumentError, match="out already exists"):
        fill(path, LINES)


def test_what_is_damaged_is_said(tmp_path: Path) -> None:
    path = tmp_path / "out"
    note, draft = tmp_path / "out.part.json", tmp_path / "out.part"
    fill(path, LINES, stop=7)
    text = note.read_text()
    for wrong in ("{", "[]", text.replace("6", "-6"), text.replace("}", ',"more":1}'), "[" * 200):
        note.write_text(wrong)
        with pytest.raises(DataError, match=r"out\.part\.json is (missing or )?damaged"):
            fill(path, LINES)
    note.write_text(text)
    draft.write_bytes(draft.read_bytes()[:20])
    with pytest.raises(DataError, match=r"out\.part is shorter than out\.part\.json says"):
        fill(path, LINES)
    note.unlink()
    with pytest.raises(DataError, match="is missing or damaged"):
        fill(path, LINES)
    draft.unlink()
    draft.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="is a symbolic link"):
        fill(path, LINES)
    with pytest.raises(RunError, match="cannot be written"):
        fill(tmp_path / "nowhere" / "out", LINES)


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    with (
        ResultFile(tmp_path / "out", SETTINGS, resume=False),
        pytest.raises(RunError, match=r"out\.part is being written by another process"),
    ):
        ResultFile(tmp_path / "out", SETTINGS, resume=True)
