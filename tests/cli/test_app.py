from __future__ import annotations

import errno
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import attent.cli.commands as attent_commands
from attent.cli.commands import ORDER, CommandFolder
from attent.errors import MissingExtraError

SOURCE = Path(__file__).parents[2] / "src"


def python(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    captured = {"cwd": SOURCE, "capture_output": True, "encoding": "utf-8", "check": False, "timeout": 60}
    return subprocess.run([sys.executable, *arguments], **captured, **options)


def test_help_lists_every_command(attent) -> None:
    done = attent("--help")
    assert done.code == 0
    names = [line.split()[0] for line in done.out if line.startswith("  ")]
    assert [name for name in names if name in ORDER] == [*CommandFolder()] == [*ORDER]
    assert attent().out == done.out


def test_help_says_which_extra_a_command_needs(attent, monkeypatch: pytest.MonkeyPatch) -> None:
    def import_without_serve(name: str) -> object:
        if name.endswith(".serve"):
            raise MissingExtraError("attent serve needs starlette")
        return import_module(name)

    monkeypatch.setattr(attent_commands, "import_module", import_without_serve)
    done = attent("--help")
    assert done.code == 0
    assert any(line.split() == ["serve", "attent", "serve", "needs", "starlette"] for line in done.out)
    assert attent("serve", "RUN").err == ["attent: attent serve needs starlette"]


def test_help_imports_nothing_slow() -> None:
    code = (
        "import sys, attent.cli.app, attent.cli.commands.translate; assert not {'torch', 'pydantic'} & set(sys.modules)"
    )
    code += "\nattent.cli.app.run(['walk', '--help']); assert not {'torch', 'numpy', 'rich'} & set(sys.modules)"
    done = python("-c", code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (ValueError("a\nbug"), 2, "unexpected ValueError: a bug (set ATTENT_TRACEBACK=1 to see where)"),
        (OSError(28, "No space left on device", "map.png"), 2, "map.png: No space left on device"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_an_error_within_a_command_is_one_line(
    attent, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, says: str
) -> None:
    def broken(text: str, **options: object) -> None:
        raise error

    monkeypatch.setattr("attent.views.walk.walk", broken)
    assert attent("walk", "a b") == (code, [], [f"attent: {says}"])
    if isinstance(error, ValueError):
        monkeypatch.setenv("ATTENT_TRACEBACK", "1")
        with pytest.raises(ValueError, match="bug"):
            attent("walk", "a b")


def test_a_closed_pipe_of_windows_is_told_apart(attent, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(text: str, **options: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    replaced: list[int] = []
    monkeypatch.setattr("attent.views.walk.walk", closed)
    monkeypatch.setattr(os, "dup2", lambda old, new: replaced.append(new))
    monkeypatch.setattr(sys.stdout, "fileno", lambda: 1)
    assert attent("walk", "a b") == (2, [], ["attent: [Errno 22] Invalid argument"])
    monkeypatch.setattr("attent.system.IS_WINDOWS", True)
    monkeypatch.setattr("attent.cli.app.speak_utf8", lambda: None)
    assert (attent("walk", "a b"), replaced) == ((1, [], []), [1])


def test_python_m_attent_is_the_command() -> None:
    done = python("-m", "attent", "--version")
    assert done.returncode == 0 and done.stdout.startswith("attent")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="a closed pipe is told apart on POSIX alone")
def test_a_reader_that_goes_away_hears_no_complaint() -> None:
    command, pipe = [sys.executable, "-m", "attent", "walk", "a b"], subprocess.PIPE
    with subprocess.Popen(command, cwd=SOURCE, stdout=pipe, stderr=pipe) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1


WRONG = {
    "translate RUN text --beam 0": "--beam must be at least 1, got 0",
    "translate RUN text --n-best 2": "n_best must be at most the beam = 1, got 2",
    "evaluate RUN --source a --target b --beam 0": "--beam must be at least 1, got 0",
    "train --train a.tsv --updates 0": "Invalid value for '--updates' / '--steps': ",
    "show RUN text --head x": "--head must be a number from 0, mean or all, got 'x'",
    "show RUN text --out x.xyz": "--out must end in .png, .svg or .html, got 'x.xyz'",
    "show RUN text --layer -1": "Invalid value for '--layer': ",
}


def test_a_wrong_value_is_refused_before_torch_is_imported() -> None:
    loop = "for line in sys.argv[1:]: print(run(line.split()), 'torch' in sys.modules)"
    script = f"import sys; from attent.cli.app import run\n{loop}"
    done = python("-c", script, *WRONG)
    assert done.stdout.splitlines() == ["2 False"] * len(WRONG)
    for line, says in zip(done.stderr.splitlines(), WRONG.values(), strict=True):
        assert line.startswith(f"attent: {says}")


def test_a_device_that_is_not_there_is_said_by_one_process_of_a_machine(
    attent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    for rank, local, lines in ((0, 0, 1), (1, 1, 0), (2, 0, 1), (3, 1, 0)):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("LOCAL_RANK", str(local))
        done = attent("train", "--corpus", "dates", "--device", "cuda:99")
        assert (done.code, len(done.err)) == (2, lines)
        assert all("this machine has no device 'cuda:99'" in line for line in done.err)


def complete(words: str) -> list[str]:
    completed = {"_ATTENT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    return python("-m", "attent", env={**os.environ, **completed}).stdout.splitlines()


def test_shells_complete_commands_and_options() -> None:
    script = python("-m", "attent", env={**os.environ, "_ATTENT_COMPLETE": "source_bash"}).stdout
    assert "_ATTENT_COMPLETE=complete_bash" in script
    assert "complete -o default -F " in script
    assert complete("attent tra") == ["train", "translate"]
    assert complete("attent train --log ") == ["tensorboard"]


NAMES = ["translate RUN TEXT", "translate RUN 2026 --prefix TEXT", "show RUN TEXT", "walk RUN TEXT", "walk TEXT"]
NAMES += ["explore RUN --no-open --port 0 --text TEXT", "train --train PAIRS --out TEXT"]
NAMES += ["export RUN --to ctranslate2 --out TEXT"]


def test_a_text_that_is_not_utf8_is_refused(attent, run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tb\nc\td\n")
    named = {"RUN": run_folder, "TEXT": "caf\udce9 2026", "PAIRS": tmp_path / "pairs.tsv"}
    for command in NAMES:
        done = attent(*(named.get(word, word) for word in command.split()))
        assert done[:2] == (2, []) and done.err[-1].endswith(" is not UTF-8: 'caf\\udce9 2026'"), command
