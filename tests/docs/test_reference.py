"""The site's reference has an entry for every command, option, setting and public name, and describes each."""

from __future__ import annotations

import html
import re
import runpy
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules, walk_packages
from typing import Any

import pytest
from pydantic import BaseModel
from typer.main import get_command

import attent
from attent.cli.app import app

ROOT = Path(__file__).parents[2]
HEADING = re.compile(r"^#+ .*\{ #(.+) \}$", re.MULTILINE)
# Modules of integrations that only others of them call.
INTERNAL = {"score_mod"}


@pytest.fixture(scope="module")
def hook() -> dict[str, Any]:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    return runpy.run_path(str(ROOT / "scripts" / "site_reference.py"))


def sections(parts: Iterator[str]) -> dict[str, str]:
    """The text of a page below each of its headings, by the heading's anchor."""
    _, *result = HEADING.split("\n\n".join(parts))
    return dict(zip(result[::2], map(html.unescape, result[1::2]), strict=True))


def options(command: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every option of a command and of those below it, and the anchor of the command."""
    anchor = path.replace(" ", "-")
    yield anchor, ""
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            is_option = parameter.param_type_name == "option"
            names = (*parameter.opts, *parameter.secondary_opts) if is_option else ()
            yield from ((anchor, name) for name in names)
    for name in getattr(command, "commands", ()):
        yield from options(command.commands[name], f"{path} {name}")


def unlisted(page: dict[str, str]) -> list[tuple[str, str]]:
    """Which commands and options a page of commands lacks."""
    expected = options(get_command(app), "attent")
    return [
        (anchor, name)
        for anchor, name in expected
        if not re.search(rf"{re.escape(name)}(?![\w-])", page.get(anchor, "\0" if name else ""))
    ]


def test_every_command_and_option_is_there(hook: dict[str, Any]) -> None:
    page = sections(hook["commands"]())
    assert not unlisted(page)
    assert "attent-data-multi30k" in page
    page["attent-translate"] = page["attent-translate"].replace("--beam", "--bean")
    assert unlisted(page) == [("attent-translate", "--beam")]


def settings_classes() -> set[type[BaseModel]]:
    names = [module.name for module in walk_packages(attent.__path__, "attent.") if module.name.endswith(".settings")]
    values = [value for name in names for value in vars(import_module(name)).values() if isinstance(value, type)]
    models = {value for value in values if issubclass(value, BaseModel) and value.__module__ in names}
    return {model for model in models if not any(issubclass(second, model) for second in models - {model})}


def test_every_setting_is_there_with_bounds_default_and_description(hook: dict[str, Any]) -> None:
    page = sections(hook["settings"]())
    for model in settings_classes():
        row = r"<tr><td><code>(\w+)</code></td><td>.+?</td><td>.+?</td><td>(.*?)</td></tr>"
        rows = dict(re.findall(row, page[model.__name__]))
        assert not [name for name in model.model_fields if len(rows.get(name, "")) < 3], model
    assert "<td><code>clip</code></td><td>number > 0</td><td><code>1.0</code></td>" in page["TrainingSettings"]
    assert "<td><code>updates</code></td><td>whole number ≥ 1</td><td>unset</td>" in page["TrainingSettings"]

    class Bare(BaseModel):
        """Settings of nothing."""

        width: int = 3

    with pytest.raises(ValueError, match=r"Bare\.width has neither"):
        list(hook["settings_parts"]("bare", Bare))


def test_every_public_name_is_there_and_says_what_it_is(hook: dict[str, Any]) -> None:
    integrations = import_module("attent.integrations").__path__
    modules = ["attent.attention", "attent.views", "attent.testing", "attent.errors"]
    names = [module.name for module in iter_modules(integrations)]
    modules += [f"attent.integrations.{name}" for name in names if name not in INTERNAL]
    expected = {f"attent.{name}" for name in attent.__all__}
    for name in modules:
        module = import_module(name)
        items = [(key, value) for key, value in vars(module).items() if not key.startswith("_") and callable(value)]
        own = [key for key, value in items if getattr(value, "__module__", "") == name]
        expected |= {f"{name}.{key}" for key in getattr(module, "__all__", own)}
    page = sections(hook["interface"]())
    assert not [name for name in expected if len(page.get(name, "").strip()) < 5]
    assert {"attent.testing.check_part", "attent.tasks.translation.translator.Translator.translate"} <= set(page)


def test_the_page_of_formats_names_every_key_and_file_of_a_run() -> None:
    from attent.runs.config import FORMAT, RunConfig
    from attent.tasks.fill_mask.fill_mask import AttendedPiece, Guess
    from attent.tasks.text_generation.continuation import GeneratedText
    from attent.training import checkpoint

    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    keys = [field.name for kind in (GeneratedText, Guess, AttendedPiece) for field in fields(kind)]
    files = [checkpoint.OPTIMIZER, checkpoint.AVERAGE, checkpoint.AVERAGED_MODEL, checkpoint.STATE]
    assert not [name for name in (*RunConfig.model_fields, *keys, *files) if f"`{name}`" not in page]
    assert f"of the folder: {FORMAT};" in page
