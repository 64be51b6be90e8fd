"""What the documentation shows is what happens: its examples run, print what stands below them, and its commands exist.

Each page is run from top to bottom, in one namespace and in a folder of its own. Of its blocks

- `python` runs; a `text` block that follows must be what was printed;
- `console` runs where output stands below its `$ attent …`, else its commands must be known, as those of any other
  block must;
- a row of a table whose last headings are `type` and `result` runs, as Python would take it at its prompt or as a
  command, and prints what stands in the last cell; a row that names a page instead quotes that page;
- a line `…` of an output stands for any number of lines; numbers with a decimal point may differ by one in their last
  digit.

Comments that do not show on the page make exceptions: see `Block.marks`.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from attent.cli.app import app
from attent.cli.app import run as attent
from attent.tasks import recipe

ROOT = Path(__file__).parents[2]
FOLDERS = ("configs", "examples")

NUMBER = re.compile(r"[-−]?\d+\.\d+")
# One in the last digit, and what binary fractions make of it.
LAST_DIGIT = 1.01
SKIPPED = "…"
# The shades of a row of a map, which change where a weight crosses a limit.
SHADES = re.compile(r"│[ ░▒▓█]*│")
# Of five introductions to attention, counted once.
STATEMENTS = 87
# Where a line calls attent; what else is in a block is none of a shell's.
CALL = re.compile(r"(?:^|[|;&] ?|bin/|-m )attent ")
# The part that docs/adding-a-part.md adds, and the task that docs/adding-a-task.md does.
INVENTED = ("scaled_cosine", "euclidean", "tasks/backwards")
# A command in running text, and the choices that it may show behind bars.
INLINE = re.compile(r"(?<!`)`(attent [^`\n]+)`(?!`)")
CHOICES = re.compile(r"\\?\|[\w.-]+")
# Code in a cell of a table, and a cell that is a link to a page.
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)[^)]*\)")
PATHS = re.compile(r"`((?:src/attent|configs|examples|benchmarks|scripts|tests|docs)/[\w./-]+)`")


def same(expected: str, actual: str, tolerance: float = 0.0, margin: float = 0.0) -> bool:
    """Whether two lines are the same, but for the last digit of numbers or the share or margin by which they differ."""
    if margin:
        expected, actual = (SHADES.sub("", line) for line in (expected, actual))
    texts = [NUMBER.split(line.rstrip()) for line in (expected, actual)]
    if margin:
        texts = [[collapsed(text) for text in parts] for parts in texts]
    if texts[0] != texts[1]:
        return False
    for result, reference in zip(NUMBER.findall(expected), NUMBER.findall(actual), strict=True):
        expected_values, got = (float(number.replace("−", "-")) for number in (result, reference))
        last_digit = LAST_DIGIT * 10 ** -len(result.split(".")[1])
        if abs(expected_values - got) > max(last_digit, tolerance * abs(expected_values), margin):
            return False
    return True


def agrees(expected: list[str], actual: list[str], tolerance: float = 0.0, margin: float = 0.0) -> bool:
    """Whether the lines found are those expected, where a line of `…` stands for any number of lines."""
    if not expected:
        return not actual
    if expected[0].strip() == SKIPPED:
        return any(agrees(expected[1:], actual[start:], tolerance, margin) for start in range(len(actual) + 1))
    if not actual or not same(expected[0], actual[0], tolerance, margin):
        return False
    return agrees(expected[1:], actual[1:], tolerance, margin)


def check(block: Any, expected: str, actual: str, line: int) -> None:
    if "varies" not in block.marks:
        limits = (float(block.marks.get(kind, 0)) for kind in ("tolerance", "within"))
        lines = [text.strip("\n").splitlines() for text in (expected, actual)]
        assert agrees(*lines, *limits), f"{block.page}:{line} shows\n{expected}\nbut this was printed:\n{actual}"


def commands(block: Any) -> list[tuple[int, str, str]]:
    records: list[tuple[int, str, str]] = []
    for offset, line in enumerate(block.text.splitlines()):
        number = block.line + offset
        if line.startswith("$ "):
            records.append((number, line[2:], ""))
        elif records and records[-1][1].endswith("\\"):
            records[-1] = (records[-1][0], f"{records[-1][1][:-1]} {line.strip()}", "")
        elif records:
            records[-1] = (*records[-1][:2], f"{records[-1][2]}{line}\n")
    return records


def execute(command: str) -> str:
    """What `attent …` or `python examples/FILE …` prints, or says on standard error if it fails."""
    program, *words = shlex.split(command)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if program == "attent":
            failed = bool(attent(words))
        else:
            assert program == "python", f"neither attent nor python: {command}"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(sys, "argv", words)
                runpy.run_path(words[0], run_name="__main__")
            failed = False
    if failed:
        assert "attent: " in err.getvalue()
        return err.getvalue().splitlines()[-1]
    return out.getvalue()


def collapsed(text: str) -> str:
    """The text with single spaces for all white space, which a cell of a table does not keep."""
    return " ".join(text.split())


def typed(lines: list[str], names: dict[str, Any]) -> str:
    """What Python prints of lines at its prompt."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        for line in lines:
            # a compound statement ends with its line
            exec(compile(f"{line}\n", "<prompt>", "single", dont_inherit=True), names)
    return out.getvalue()


def try_row(block: Any, names: dict[str, Any]) -> None:
    """Run a row of a table, or find what it quotes in the page that it names."""
    lines, expected = ([code.replace("\\|", "|") for code in CODE.findall(cell)] for cell in (block.text, block.result))
    assert expected, f"{block.location}: nothing comes of it"
    if link := LINK.fullmatch(block.text):
        page = collapsed(((ROOT / block.page).parent / link[1]).read_text(encoding="utf-8"))
        assert not [text for text in expected if collapsed(text) not in page], f"{block.location}: not in {link[1]}"
    elif lines[0].startswith("attent "):
        (command,) = lines
        parts = [part for text in expected for part in (SKIPPED, collapsed(text))]
        check(block, "\n".join([*parts, SKIPPED]), "\n".join(map(collapsed, execute(command).splitlines())), block.line)
    else:
        check(block, "\n".join(expected), typed(lines, names), block.line)


def read_aloud(page: Any, *, slow: bool) -> None:
    names: dict[str, Any] = {"__name__": page.name}
    printed: str | None = None
    for block in page.blocks:
        saved = not {"not run", "shared"} & set(block.marks) and (slow or "slow" not in block.marks)
        if block.language == "text" and block.output and printed is not None:
            check(block, block.text, printed, block.line)
        printed = None
        if block.language == "python" and ">>>" not in block.text and saved:
            out, code = io.StringIO(), "\n" * (block.line - 1) + block.text
            with contextlib.redirect_stdout(out):
                exec(compile(code, str(ROOT / page.name), "exec", dont_inherit=True), names)
            printed = out.getvalue()
        elif block.language == "row" and saved:
            try_row(block, names)
        elif block.language == "console" and saved:
            for line, command, output in commands(block):
                if output.strip() or "slow" in block.marks:
                    check(block, output, execute(command), line)


@pytest.fixture(autouse=True)
def beside_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, in which the recipes and examples lie as in a checkout."""
    for name in FOLDERS:
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def test_a_page_shows_what_happens(page: Any) -> None:
    read_aloud(page, slow=False)


@pytest.mark.slow
def test_so_does_a_page_that_takes_minutes(slow_page: Any, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if reads_course(slow_page):
        request.getfixturevalue("course")(tmp_path)
    read_aloud(slow_page, slow=True)


def reads_course(page: Any) -> bool:
    """Whether a page shows runs that all pages of the course share."""
    return any(block.marks.get("slow", "").endswith("of the course") for block in page.blocks)


def calls(text: str) -> Iterator[list[str]]:
    """The arguments of every attent that is called in some lines of a shell."""
    for line in filter(CALL.search, text.replace("\\\n", " ").splitlines()):
        words = shlex.shlex(line.replace("[", "").replace("]", ""), posix=True, punctuation_chars=True)
        words.whitespace_split = True
        started: list[str] | None = None
        for word in [*words, ";"]:
            if set(word) <= set("|&;<>"):
                if started is not None:
                    yield started
                started = None
            elif started is not None:
                started.append(word)
            elif word.split("/")[-1] == "attent":
                started = []


def check_known(arguments: list[str]) -> None:
    """Raise where typer's parser does not know the command or one of its options."""
    command: Any = get_command(app)
    context = command.make_context("attent", [], resilient_parsing=True)
    while isinstance(command, TyperGroup):
        if not arguments or arguments[0].startswith("-"):
            command.make_parser(context).parse_args(args=list(arguments))
            return
        name, *arguments = arguments
        result = command.get_command(context, name)
        assert result is not None, f"there is no command {name}"
        command, context = result, type(context)(result, parent=context, info_name=name)
    command.make_parser(context).parse_args(args=arguments)


def check_commands(location: str, text: str) -> None:
    for arguments in calls(text):
        try:
            check_known(arguments)
        except Exception as error:
            pytest.fail(f"{location}: attent {shlex.join(arguments)}: {error}")
        assert not [file for file in arguments if file.startswith("configs/") and not (ROOT / file).is_file()], location


def test_commands_and_files_that_are_named_exist_and_exceptions_have_a_reason(pages: list[Any]) -> None:
    for page in pages:
        for block in page.blocks:
            if block.language in {"", "console", "sh"}:
                of_console = "\n".join(command for _, command, _ in commands(block))
                check_commands(block.location, of_console if block.language == "console" else block.text)
            for kind, reason in block.marks.items():
                assert float(reason) > 0 if kind in ("tolerance", "within") else len(reason) > 10, (
                    f"{block.location}: {kind}"
                )
        text = (ROOT / page.name).read_text(encoding="utf-8")
        for command in INLINE.findall(text):
            check_commands(page.name, CHOICES.sub("", command).replace("…", "TEXT"))
        if page.name != "docs/design.md":  # which names files of other projects too
            own = [name for name in PATHS.findall(text) if not any(invented in name for invented in INVENTED)]
            assert not [name for name in own if not (ROOT / name).exists()], page
    for arguments in (["trian"], ["walk", "--scores", "dot"], ["compare", "speed"], ["walk", "--score"]):
        with pytest.raises(Exception, match=r"."):
            check_known(arguments)


def test_trainings_that_change_settings_can_begin(
    pages: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(recipe, "follow", lambda settings, *_, **__: started.append(settings) or {})
    (tmp_path / "pairs.tsv").write_text("a dog\tein Hund\n", encoding="utf-8")
    called = [words for page in pages for block in page.blocks for words in calls(block.text)]
    trainings = [words for words in called if words[:1] == ["train"] and "--set" in words]
    for words in trainings:
        assert attent(words) == 0, words
    assert len(started) == len(trainings)
    for vectors, model in ((settings.vectors, settings.model) for settings in started):
        assert vectors is None or f".{model.width}d." in vectors.source


def test_lines_are_compared_to_their_last_digit() -> None:
    assert same("0.25 of 3", "0.26 of 3") and same("x −0.1", "x -0.1")
    assert not same("0.25 of 3", "0.27 of 3") and not same("0.25 of 3", "0.25 of 4")
    assert agrees(["a", "…", "d"], ["a", "b", "c", "d"]) and not agrees(["a", "…", "d"], ["a", "b", "c"])
    assert agrees(["0.5"], ["0.6"], tolerance=0.25) and not agrees(["0.50"], ["0.66"], tolerance=0.25)
    shades = [" noir │░▓  │ black 0.49", " noir │░█  │ black 0.51"]
    assert agrees(shades[:1], shades[1:], margin=0.1) and not agrees(shades[:1], shades[1:], margin=0.01)
    assert agrees(["a  9.9"], ["a 10.0"], margin=0.2) and not agrees(["a 9.9"], ["b 9.9"], margin=0.2)


def test_every_statement_of_introductions_is_tried_and_most_whenever_the_tests_run(pages: list[Any]) -> None:
    """The others quote a page; what trains for minutes is on those pages."""
    page = next(page for page in pages if page.name == "docs/statements.md")
    rows = [block for block in page.blocks if block.language == "row"]
    assert len(rows) == STATEMENTS and all(row.text and row.result for row in rows)
    assert sum(not row.text.startswith("[") and "slow" not in row.marks for row in rows) > STATEMENTS / 2
