"""attent learn: exercises that check themselves."""

from pathlib import Path
from typing import Annotated

import typer

from attent.cli.output import say, write
from attent.errors import ArgumentError, refuse
from attent.setting import Help


def learn(
    number: Annotated[
        int | None,
        typer.Argument(metavar="NUMBER", help="The exercise, 1 to 6; all of them, with your progress, unless given."),
    ] = None,
    check: Annotated[bool, Help("Run your file; show what is right, what is not, and why. Ctrl-C stops it.")] = False,
    hint: Annotated[bool, Help("Show the next hint; the last one is nearly the code.")] = False,
    out: Annotated[Path | None, Help("With --check, also save the picture.", "FILE.png|svg")] = None,
    folder: Annotated[Path, Help("Folder of your files.")] = Path("exercises"),
) -> None:
    """Do exercises that check themselves: write softmax, two heads or beam search in a few lines of PyTorch.

    With a number, the exercise is written into a file, which you fill in, and which is never overwritten. The exit code
    of --check is 0 if everything is right.
    """
    from attent.learning.exercise import exercise, exercises

    refuse(
        (number is None and (check or hint), "--check and --hint need an exercise: attent learn 1 --check"),
        (out and not check, "--out needs --check"),
        (check and hint, "give --check or --hint, not both"),
    )
    if number is None:
        for index, listed in enumerate(exercises(), start=1):
            progress = _progress(index, folder / listed["file"])
            write(f"{index}  {listed['title']:26}page {listed['page']:<4}{progress}")
    elif hint:
        _hint(number, folder / exercise(number)["file"], exercise(number)["hints"])
    elif check:
        _check(number, folder / exercise(number)["file"], out)
    else:
        chosen, path = exercise(number), folder / exercise(number)["file"]
        state = "is yours, and stays as it is"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(chosen["template"], encoding="utf-8", newline="\n")
            state = "is written"
        write(f"{chosen['task']}\n{path} {state}. Fill in {chosen['function']}, then:\n  attent learn {number} --check")


def _hint(number: int, path: Path, hints: list[str]) -> None:
    """Print the next hint, or all if none is left, and how many are left; a file beside the exercise keeps them."""
    record = path.with_suffix(".hints.txt")
    count = len(record.read_bytes().splitlines()) if record.exists() else 0
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text("".join(f"{hint}\n" for hint in hints[: count + 1]), encoding="utf-8", newline="\n")
    left = max(len(hints) - count - 1, 0)
    write("\n".join((*(hints[count : count + 1] or hints), f"{left} of {len(hints)} hints left")))


def _check(number: int, path: Path, out: Path | None) -> None:
    """Print what is right in a file, and save the picture; exit with code 2 if something is wrong."""
    from attent.learning.judge import check_file
    from attent.views.picture import picture

    judgment = check_file(number, path)
    write(judgment)
    if not judgment.is_right:
        raise typer.Exit(2)
    if out is not None:
        picture(judgment.panels, out)
        say(f"written to {out}")


def _progress(number: int, path: Path) -> str:
    """Return the progress that a file shows, or what prevents it from running."""
    from attent.learning.judge import check_file

    try:
        findings = [*check_file(number, path).findings.values()] if path.exists() else []
        return f"{findings.count('')} of {len(findings)} right" if findings else "not begun"
    except ArgumentError as error:
        return str(error)
