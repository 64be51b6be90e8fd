from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attent import system
from attent.learning.exercise import exercise, exercises

FILE = Path("exercises/4_two_heads.py")


@pytest.fixture(autouse=True)
def in_a_fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def solve(number: int, folder: str = "exercises") -> None:
    path = Path(folder) / exercise(number)["file"]
    path.write_text(exercise(number)["solution"], encoding="utf-8")


def test_a_student_opens_an_exercise_fills_it_in_and_sees_the_picture(attent) -> None:
    done = attent("learn", 4)
    assert (done.code, done.err) == (0, []) and done.out[0] == "Exercise 4: two heads."
    assert done.out[-2:] == [f"{FILE} is written. Fill in two_heads, then:", "  attent learn 4 --check"]
    assert FILE.read_text(encoding="utf-8") == exercise(4)["template"]
    done = attent("learn", 4, "--check")
    assert (done.code, done.err) == (2, [])
    assert done.out[0] == "wrong  one sentence: NotImplementedError: two_heads is still to be written"
    solve(4)
    done = attent("learn", 4, "--check")
    assert done.code == 0 and done.out[0] == "right  one sentence" and done.out[4].endswith("head 0")


def test_each_call_shows_the_next_hint_and_then_all(attent) -> None:
    first, second, third = exercise(4)["hints"]
    for expected in (
        [first, "2 of 3 hints left"],
        [second, "1 of 3 hints left"],
        [third, "0 of 3 hints left"],
        [first, second, third, "0 of 3 hints left"],
        [first, second, third, "0 of 3 hints left"],
    ):
        done = attent("learn", 4, "--hint")
        assert (done.code, done.out, done.err) == (0, expected, [])
    assert FILE.with_suffix(".hints.txt").read_text(encoding="utf-8").splitlines() == [first, second, third]
    assert not FILE.exists()


def test_hints_are_kept_for_each_exercise_and_folder(attent) -> None:
    attent("learn", 4, "--hint")
    assert attent("learn", 3, "--hint").out == [exercise(3)["hints"][0], "2 of 3 hints left"]
    assert attent("learn", 4, "--hint", "--folder", "mine").out == [exercise(4)["hints"][0], "2 of 3 hints left"]
    assert attent("learn", 4, "--hint").out == [exercise(4)["hints"][1], "1 of 3 hints left"]
    FILE.with_suffix(".hints.txt").unlink()
    assert attent("learn", 4, "--hint").out == [exercise(4)["hints"][0], "2 of 3 hints left"]


def test_a_file_is_never_overwritten(attent) -> None:
    FILE.parent.mkdir()
    FILE.write_text("my work", encoding="utf-8")
    assert attent("learn", 4).out[-2] == f"{FILE} is yours, and stays as it is. Fill in two_heads, then:"
    assert FILE.read_text(encoding="utf-8") == "my work"
    assert [path.name for path in FILE.parent.iterdir()] == [FILE.name]


def test_the_list_shows_the_progress_that_the_files_show(attent) -> None:
    titles = [chosen["title"] for chosen in exercises()]
    done = attent("learn")
    assert (done.code, done.err) == (0, [])
    pages = [chosen["page"] for chosen in exercises()]
    assert done.out == [
        f"{number}  {title:26}page {page:<4}not begun"
        for number, (title, page) in enumerate(zip(titles, pages, strict=True), start=1)
    ]
    assert not Path("exercises").exists()
    for number in (1, 2, 3, 4, 6):
        attent("learn", number)
    solve(1)
    Path("exercises/2_scaled_dot_product.py").write_text(
        "def scaled_dot_product(query, key):\n    return query @ key.T / query.shape[-1] ** 0.5\n", encoding="utf-8"
    )
    Path("exercises/3_mask.py").write_text("def masked(", encoding="utf-8")
    progress = [line[38:] for line in attent("learn").out]
    assert progress == [
        "8 of 8 right",
        "3 of 5 right",
        f"{Path('exercises/3_mask.py')} raises SyntaxError: '(' was never closed (3_mask.py, line 1)",
        "0 of 3 right",
        "not begun",
        "0 of 6 right",
    ]


def test_another_folder_and_a_picture(attent) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    attent("learn", 3, "--folder", "mine/too")
    assert attent("learn", 3, "--folder", "mine/too", "--check", "--out", "mask.svg").code == 2
    assert not Path("mask.svg").exists()
    solve(3, "mine/too")
    done = attent("learn", 3, "--folder", "mine/too", "--check", "--out", "mask.svg")
    assert (done.code, done.err) == (0, ["written to mask.svg"])
    assert "<svg" in Path("mask.svg").read_text(encoding="utf-8")


def test_refusals(refused) -> None:
    assert refused("learn", 9) == "exercises are numbered from 1 to 6, got 9"
    assert refused("learn", 0, "--hint") == "exercises are numbered from 1 to 6, got 0"
    assert refused("learn", "x").startswith("Invalid value for 'NUMBER'")
    assert refused("learn", "--check") == "--check and --hint need an exercise: attent learn 1 --check"
    assert refused("learn", 4, "--out", "x.png") == "--out needs --check"
    assert refused("learn", 4, "--check") == f"there is no {FILE}: attent learn 4 writes it"
    Path("exercises").write_text("", encoding="utf-8")
    assert refused("learn", 4).startswith("exercises: ")


@pytest.mark.slow
@pytest.mark.skipif(system.IS_WINDOWS, reason="Ctrl-C is another signal")
def test_a_loop_that_never_ends_is_stopped() -> None:
    FILE.parent.mkdir()
    FILE.write_text("def two_heads(*inputs):\n    print('begun', flush=True)\n    while True:\n        pass\n", "utf-8")
    command = [sys.executable, "-m", "attent", "learn", "4", "--check"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, err) == (130, "attent: interrupted\n")
