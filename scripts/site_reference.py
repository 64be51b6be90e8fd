"""A MkDocs hook that generates the pages in reference/ from commands, settings and modules at every build."""

from __future__ import annotations

import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from html import escape
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import annotated_types
from mkdocs.structure.files import File
from pydantic import BaseModel
from typer.main import get_command

# Sections of a docstring.
SECTION = re.compile(r"(Args|Attributes|Returns|Raises|Yields|Examples?):")
# A line that begins an entry in such a section, such as "top_k, top_p: as above".
ENTRY = re.compile(r"([\w*, ]+): (.+)")
# A memory address, which would differ at every build.
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
# Maximum characters of a signature on one line.
WIDTH = 100
# Modules whose public names are the interface; integrations follow by their folder.
MODULES = (
    "attent",
    "attent.attention",
    "attent.views",
    "attent.documents",
    "attent.errors",
    "attent.learning",
    "attent.models",
    "attent.testing",
)
# Integration modules without public functions.
INTERNAL = ("attent.integrations.score_mod",)
# Types returned by public functions.
RETURNED = (
    *(
        "attent.tasks.translation.translator:Translator",
        "attent.tasks.classification.classifier:Classifier",
        "attent.tasks.fill_mask.fill_mask:FillMask",
        "attent.tasks.caption.captioner:Captioner",
        "attent.tasks.question_answering.question_answerer:QuestionAnswerer",
    ),
    *(
        "attent.tasks.text_generation.text_generator:TextGenerator",
        "attent.nonparametric.lookup:Answer",
        "attent.views.pages.page:Page",
    ),
    "attent.views.trace:AttentionTrace",
)
NO_VALUE = "(none)"
# The search ranks explanatory pages above these.
META = "---\nsearch:\n  boost: 0.5\n---\n"


def on_files(files: Any, *, config: Any) -> Any:
    """Add the generated pages to the site's files."""
    for name, page in {"commands": commands, "settings": settings, "python": interface}.items():
        files.append(File.generated(config, f"reference/{name}.md", content=META + "\n\n".join(page())))
    return files


def inline(text: str) -> str:
    """Return text as HTML, with backticks converted to code."""
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escape(" ".join(text.split()), quote=False))


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table of cells in HTML."""
    cells = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    head = "".join(f"<th>{name}</th>" for name in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(f'<tr>{row}</tr>' for row in cells)}</tbody></table>"


def code(text: str) -> str:
    """Return lines of code as HTML in which Markdown does not treat a blank line as the end.

    Without buttons for copying: the theme's script takes seconds to place hundreds of them.
    """
    return f"<pre class='no-copy'><code>{escape(text, quote=False)}</code></pre>".replace("\n", "&#10;")


def paragraphs(text: str) -> str:
    """Return text as paragraphs; indented blocks and tree drawings are kept as they are."""
    blocks = [block for block in text.split("\n\n") if block.strip()]
    is_code = [block.startswith("    ") or "├──" in block for block in blocks]
    return "\n".join(
        code(textwrap.dedent(block)) if is_drawn else f"<p>{inline(block)}</p>"
        for block, is_drawn in zip(blocks, is_code, strict=True)
    )


def docstring_sections(text: str) -> dict[str, str]:
    """Return the sections of a docstring by name; the first one is named ""."""
    sections, name = {"": list[str]()}, ""
    for line in text.splitlines():
        if heading := SECTION.fullmatch(line):
            name = heading[1]
            sections[name] = []
        else:
            sections[name].append(line)
    return {name: textwrap.dedent("\n".join(lines)).strip("\n") for name, lines in sections.items()}


def entries(section: str) -> dict[str, str]:
    """Return the description of each name in a section such as Args."""
    result: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        if entry := ENTRY.fullmatch(line):
            names = [name.strip("* ") for name in entry[1].split(",")]
            result |= dict.fromkeys(names, entry[2])
        elif names:
            result |= {name: f"{result[name]} {line.strip()}" for name in names}
    return result


def documented(text: str) -> str:
    """Return a docstring as HTML."""
    parts = []
    for name, section in docstring_sections(text).items():
        if name in ("", "Returns", "Yields"):
            parts.append(paragraphs(f"{name}: {section}" if name else section))
        elif name.startswith("Example"):
            parts.append(code(section))
        else:
            rows = [(f"<code>{escape(key)}</code>", inline(value)) for key, value in entries(section).items()]
            parts.append(table((name, ""), rows) if rows else f"<p>{name}: {inline(section)}</p>")
    return "\n".join(parts)


# Commands


def commands() -> Iterator[str]:
    """Yield the parts of the page about commands."""
    from attent.cli.app import app

    yield "# Every command and option"
    yield "Written from the commands themselves; `--help` behind a command prints the same."
    root: Any = get_command(app)
    yield from command_parts(root, root.make_context("attent", [], resilient_parsing=True))


def command_parts(command: Any, context: Any, level: int = 2) -> Iterator[str]:
    """Yield a command's parts, then those of its subcommands."""
    path = context.command_path
    yield f"{'#' * level} `{path}` {{ #{path.replace(' ', '-')} }}"
    yield code(" ".join([path, *command.collect_usage_pieces(context)]))
    yield paragraphs(command.help or "")
    records = [record for parameter in command.get_params(context) if (record := parameter.get_help_record(context))]
    yield table(
        ("argument or option", "what it does"),
        ((f"<code>{escape(name)}</code>", inline(text)) for name, text in records),
    )
    for name in getattr(command, "commands", ()):
        subcommand = command.get_command(context, name)
        yield from command_parts(
            subcommand, type(context)(subcommand, parent=context, info_name=name), min(level + 1, 3) if level > 2 else 2
        )


# Settings


def settings() -> Iterator[str]:
    """Yield the parts of the page about settings.

    The tables of a recipe come first, then those of searches and of word vectors.
    """
    from attent.models.settings import SETTINGS
    from attent.search.settings import GenerationSettings, SearchSettings
    from attent.tasks.settings import RunSettings
    from attent.text.settings import SkipGramSettings

    yield "# Every setting"
    yield (
        "Written from the settings themselves. A recipe is a TOML file of tables; `attent train --set "
        "TABLE.NAME=VALUE` sets one value."
    )
    yield from settings_parts("A recipe", RunSettings)
    for name, field in RunSettings.model_fields.items():
        models: list[Any] = [
            kind for kind in (field.annotation, *typing.get_args(field.annotation)) if is_settings(kind)
        ]
        if name != "model" and models:
            yield from settings_parts(f"[{name}]", models[0])
    for kind, model in SETTINGS.items():
        yield from settings_parts(f'[model], kind = "{kind}"', model)
    yield "The following are options of commands and arguments in Python, not tables of a recipe."
    yield from settings_parts("Search: translate", SearchSettings)
    yield from settings_parts("Generation: generate", GenerationSettings)
    yield from settings_parts("Word vectors: vectors --from-text", SkipGramSettings)


def is_settings(kind: Any) -> bool:
    """Return whether a type is a class of settings."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def settings_parts(title: str, model: type[BaseModel]) -> Iterator[str]:
    """Yield a heading, the docstring of a settings class and a table of its fields."""
    described: dict[str, str] = {}
    for base in reversed(model.__mro__):
        described |= entries(docstring_sections(inspect.cleandoc(base.__dict__.get("__doc__") or "")).get("Args", ""))
    yield f"## {title} {{ #{model.__name__} }}"
    yield paragraphs(docstring_sections(inspect.getdoc(model) or "")[""])
    rows = []
    for name, field in model.model_fields.items():
        values = "a table" if is_table(field.annotation) else kind_of(field.annotation, field.metadata)
        default = (
            NO_VALUE
            if field.is_required()
            else value_of(field.get_default() if field.default_factory is None else None)
        )
        default = "–" if values == "a table" else default
        if not (meaning := field.description or described.get(name)):
            raise ValueError(
                f"{model.__module__}.{model.__name__}.{name} has neither a description nor a line under Args"
            )
        rows.append((f"<code>{name}</code>", values, default, inline(meaning)))
    if presets := getattr(model, "presets", None):
        rows.append(
            (
                "<code>preset</code>",
                " or ".join(map(value_of, presets)),
                "–",
                "a published size or recipe, whose values the others change",
            )
        )
    yield table(("name", "value", "default", "meaning"), rows)


def is_table(annotation: Any) -> bool:
    """Return whether a type is a settings class, optional or not."""
    return any(map(is_settings, (annotation, *typing.get_args(annotation))))


def value_of(value: Any) -> str:
    """Return a value as HTML in TOML syntax."""
    if value is None:
        return "unset"
    text = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
    text = f"[{text[1:-1]}]" if isinstance(value, tuple) else text
    return f"<code>{escape(text, quote=False)}</code>"


def kind_of(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """Return a type and its bounds in words."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return kind_of(arguments[0], [*arguments[1:], *metadata])
    if origin is typing.Literal:
        text = " or ".join(map(value_of, arguments))
    elif origin in (typing.Union, types.UnionType):
        text = " or ".join(kind_of(part) for part in arguments if part is not types.NoneType)
    elif origin is tuple:
        text = "a list of " + ", ".join(kind_of(part) for part in arguments if part is not Ellipsis)
    else:
        text = {int: "whole number", float: "number", bool: "true or false", str: "text"}[annotation]
    limits = [limit for part in metadata for limit in bounds(part)]
    return " ".join([text, ", ".join(limits)]).strip()


def bounds(constraint: Any) -> Iterator[str]:
    """Yield a constraint in words."""
    for name, sign in (("gt", "&gt;"), ("ge", "≥"), ("lt", "&lt;"), ("le", "≤")):
        if isinstance(
            constraint,
            annotated_types.Interval
            | annotated_types.Gt
            | annotated_types.Ge
            | annotated_types.Lt
            | annotated_types.Le,
        ):
            limit = getattr(constraint, name, None)
            if limit is not None:
                yield f"{sign} {limit:,}" if isinstance(limit, int) else f"{sign} {limit:g}"


# The Python interface


class Written(str):
    """An annotation that is shown exactly as written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def modules() -> list[str]:
    """Return the modules whose public names are the interface."""
    package = import_module("attent.integrations")
    found = [f"attent.integrations.{module.name}" for module in iter_modules(package.__path__)]
    return [*MODULES, *(name for name in found if name not in INTERNAL)]


def public_names(module: Any) -> list[str]:
    """Return a module's public names: its __all__, or else the functions and classes that it defines."""
    own = [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and callable(value)
    ]
    return sorted(getattr(module, "__all__", [name for name in own if not name.startswith("_")]))


def interface() -> Iterator[str]:
    """Yield the parts of the page about the Python interface."""
    yield "# Every public name in Python"
    yield (
        "Written from the modules themselves. What begins with an underscore or is not on this page may change at any "
        "time."
    )
    for name in modules():
        module = import_module(name)
        yield f"## {name} {{ #{name} }}"
        yield documented(inspect.getdoc(module) or "")
        for member in public_names(module):
            yield from member_parts(f"{name}.{member}", getattr(module, member))
    yield "## What public functions return { #returned }"
    for address in RETURNED:
        module, _, name = address.partition(":")
        yield from member_parts(f"{module}.{name}", getattr(import_module(module), name))


def member_parts(name: str, member: Any) -> Iterator[str]:
    """Yield the parts of one public name: a class with its methods, a function, a module or a value."""
    yield f"### `{name}` {{ #{name}-name }}" if inspect.ismodule(member) else f"### `{name}` {{ #{name} }}"
    if inspect.ismodule(member):
        yield documented((inspect.getdoc(member) or "").split("\n\n")[0])
    elif isinstance(member, str):
        yield f"<p><code>{escape(repr(member))}</code></p>"
    else:
        yield signature(name.rpartition(".")[2], member)
        yield documented(inspect.getdoc(member) or "")
    if inspect.isclass(member):
        yield from methods(name, member)


def methods(name: str, owner: type) -> Iterator[str]:
    """Yield the public methods and properties that one of attent's classes defines."""
    for key in dict.fromkeys(
        key for base in owner.__mro__ if base.__module__.startswith("attent.") for key in vars(base)
    ):
        member = inspect.getattr_static(owner, key)
        is_property = isinstance(member, property)
        if key.startswith("_") or not (
            is_property or isinstance(member, classmethod | staticmethod) or inspect.isfunction(member)
        ):
            continue
        yield f"#### `{key}` {{ #{name}.{key} }}"
        yield "" if is_property else signature(key, getattr(owner, key))
        yield documented(inspect.getdoc(getattr(owner, key)) or "")


def signature(name: str, member: Callable[..., Any]) -> str:
    """Return a signature as HTML, with one argument per line if it is long."""
    try:
        given = inspect.signature(member)
    except ValueError:
        return code(f"{name}(…)")
    parameters = {
        key: value.replace(annotation=written(value.annotation))
        for key, value in given.parameters.items()
        if key != "self"
    }
    returned = given.empty if inspect.isclass(member) else written(given.return_annotation)
    text = name + str(given.replace(parameters=list(parameters.values()), return_annotation=returned))
    if len(text) > WIDTH:
        text = "\n".join([f"{name}(", *signature_lines(parameters), f"){text.rpartition(')')[2]}"])
    return code(ADDRESS.sub("", text))


def signature_lines(parameters: dict[str, inspect.Parameter]) -> list[str]:
    """Return a line for each parameter, and for the star before keyword-only ones."""
    lines, has_star = [], False
    for parameter in parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            lines.append("    *,")
        has_star |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        lines.append(f"    {parameter},")
    return lines


def written(annotation: Any) -> Any:
    """Return an annotation given as a string without its quotes."""
    return Written(annotation) if isinstance(annotation, str) else annotation
