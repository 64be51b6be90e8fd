"""The data of all exercises, and what the judge says of functions that are no functions of tensors."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attent.errors import ArgumentError
from attent.learning import check
from attent.learning.exercise import exercise, exercises
from attent.learning.judge import Judgment, check_file

DOCS = Path(__file__).parents[2] / "docs"
NUMBERS = range(1, 7)
each_exercise = pytest.mark.parametrize("number", NUMBERS)


def function_of(code: str, name: str) -> Callable[..., Any]:
    names: dict[str, Any] = {}
    exec(code, names)
    return names[name]


def test_exercises_are_numbered() -> None:
    assert [chosen["file"][0] for chosen in exercises()] == [str(number) for number in NUMBERS]
    for number in (0, 7, -1):
        with pytest.raises(ArgumentError, match=f"^exercises are numbered from 1 to 6, got {number}$"):
            exercise(number)


@each_exercise
def test_the_template_is_a_file_with_the_task_and_the_function(number: int) -> None:
    chosen = exercise(number)
    module = ast.parse(chosen["template"])
    assert ast.get_docstring(module) == chosen["task"].strip()
    assert chosen["task"].startswith(f"Exercise {number}: {chosen['title']}.\n")
    (function,) = (node for node in module.body if isinstance(node, ast.FunctionDef))
    assert function.name == chosen["function"] and ast.get_docstring(function)
    assert max(map(len, chosen["template"].splitlines())) <= 120
    assert len(chosen["hints"]) == 3
    judgment = check(number, function_of(chosen["template"], chosen["function"]))
    assert set(judgment.findings.values()) == {f"NotImplementedError: {chosen['function']} is still to be written"}
    assert judgment.reason == ""


@each_exercise
def test_the_solution_passes_and_each_mistake_in_it_is_named(number: int) -> None:
    chosen = exercise(number)
    judgment = check(number, function_of(chosen["solution"], chosen["function"]))
    assert judgment.is_right and judgment.panels, judgment
    assert chosen["picture"]["title"] in str(judgment)
    assert len({mistake["why"] for mistake in chosen["mistakes"]}) >= 10
    for mistake in chosen["mistakes"]:
        assert chosen["solution"].count(mistake["old"]) == 1 or mistake["old"] == "@ key", mistake
        code = chosen["solution"].replace(mistake["old"], mistake["new"])
        wrong = check(number, function_of(code, chosen["function"]))
        assert not wrong.is_right and wrong.reason == mistake["why"], f"{mistake['why']}\n{wrong}"


@each_exercise
def test_what_does_not_work_is_said_in_a_line_for_each_case(number: int) -> None:
    chosen = exercise(number)

    def unfinished(*inputs: Any) -> Any:
        return None

    def array(*inputs: Any) -> Any:
        return tuple(np.ones(3) for _ in chosen["returns"])

    def failing(*inputs: Any) -> Any:
        raise KeyError("a key\nwith a line \x1b[31m")

    def leaving(*inputs: Any) -> Any:
        raise SystemExit(3)

    for function, finding in {
        unfinished: r".* must be .*, got NoneType; is there a return\?",
        array: r".* must be .*, got ndarray(, ndarray)*",
        failing: r"KeyError: 'a key\\nwith a line \\x1b\[31m'",
        leaving: "SystemExit: 3",
    }.items():
        judgment = check(number, function)
        assert [*judgment.findings] == [*chosen["cases"]]
        assert all(re.fullmatch(finding, text) for text in judgment.findings.values()), judgment
        assert len(str(judgment).splitlines()) == len(chosen["cases"])


def test_inputs_that_are_changed_in_place_stay_as_they_are_for_the_next_case() -> None:
    def function(scores: torch.Tensor) -> torch.Tensor:
        scores -= scores.amax(-1, keepdim=True)
        powers = scores.exp()
        return powers / powers.sum(-1, keepdim=True)

    *cases, part = check(1, function).findings.values()
    assert not any(cases)
    # amax needs the scores again for their gradient
    assert part.startswith("PartError: ") and "modified by an inplace operation" in part


def test_the_judgement_is_the_same_each_time_and_leaves_random_numbers_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    first = check(4, lambda features, *weights: features)
    assert torch.rand(1) == expected
    torch.manual_seed(5)
    assert repr(check(4, lambda features, *weights: features)) == repr(first)


def test_a_file_is_run(tmp_path: Path) -> None:
    path = tmp_path / "1_softmax.py"
    with pytest.raises(ArgumentError, match=r"there is no .*1_softmax.py: attent learn 1 writes it$"):
        check_file(1, path)
    path.write_text("def softmax(scores):\n    return scores.softmax(-1)\n", encoding="utf-8")
    judgment = check_file(1, path)
    assert isinstance(judgment, Judgment) and judgment.is_right
    for text, message in {
        "def softmax(scores)\n": r"raises SyntaxError: expected ':' \(1_softmax.py, line 1\)$",
        "import torchh\n": "raises ModuleNotFoundError: No module named 'torchh'$",
        "exit()\n": "raises SystemExit: None$",
        "def soft_max(scores):\n    pass\n": "has no function softmax$",
        "softmax = 3\n": "has no function softmax$",
        "\0": "raises SyntaxError: ",
    }.items():
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ArgumentError, match=rf"^{re.escape(str(path))} {message}"):
            check_file(1, path)


@each_exercise
def test_exercise_and_page_of_the_course_name_each_other(number: int) -> None:
    chosen = exercise(number)
    navigation = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    (file,) = re.findall(rf"^  - {chosen['page']} [^:\n]+: (learn/\S+\.md)$", navigation, re.M)
    (name,) = re.findall(rf"^After page {chosen['page']} of the course: (.+)\.$", chosen["task"], re.M)
    section = (DOCS / "exercises.md").read_text(encoding="utf-8").split(f"\n## {number}. ")[1].split("\n## ")[0]
    assert f"After page {chosen['page']}, [{name}]({file})" in section
    line = rf"^\[Exercise {number}\]\(\.\./exercises\.md#({number}-\S+)\) belongs here: `attent learn {number}`, "
    (anchor,) = re.findall(line, (DOCS / file).read_text(encoding="utf-8"), re.M)
    row = rf"^{chosen['page']}\. \[.+\]\({file}\), .+ · \[exercise {number}\]\(exercises\.md#{anchor}\)$"
    assert re.search(row, (DOCS / "index.md").read_text(encoding="utf-8"), re.M)


def test_the_page_has_the_functions_of_the_templates_and_the_number_of_mistakes() -> None:
    page = (DOCS / "exercises.md").read_text(encoding="utf-8")
    for number in NUMBERS:
        chosen = exercise(number)
        function = chosen["template"][chosen["template"].index("\ndef ") :].strip()
        assert f"{function}\n\n\nprint(check({number}, {chosen['function']}))\n" in page
        assert f"\n## {number}. {chosen['title'][0].upper()}{chosen['title'][1:]}\n" in page
    mistakes = {(chosen["file"], mistake["why"]) for chosen in exercises() for mistake in chosen["mistakes"]}
    assert f"It recognizes {len(mistakes)} usual mistakes" in page
