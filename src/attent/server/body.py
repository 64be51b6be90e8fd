"""The parameters of a request: from JSON, from a form, or from the query string."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from attent.errors import ArgumentError
from attent.server.batcher import prepare
from attent.server.errors import RequestError, invalid
from attent.server.settings import SPARE, ServerSettings
from attent.tasks.translation.glossary import Glossary

FORM, PARTS = "application/x-www-form-urlencoded", "multipart/form-data"
# Characters of a content type; a longer one takes python-multipart long to read.
MAX_KIND = 1_000
# An escape of a character beyond U+FFFF, or of half of one.
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# Escaped bytes of a form; a run that is too long would take memory to match.
ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2}){1,1000}")
# Parameters of a form or a query string beside a text each.
SPARE_FIELDS = 16
# Parameters where the number of texts has no limit.
MAX_FIELDS = 1_000
# Of the glossary of a request.
MAX_TERMS = 200


async def receive_body(request: Request, settings: ServerSettings) -> None:
    """Take in a whole body; a form in parts, whose documents go to the disk, is read part by part as it comes.

    Raises:
        RequestError: it is no form although it says so, or has too many parts.
    """
    if _kind(request) != PARTS:
        await request.body()
        return
    try:
        await request.form(max_files=1, max_fields=_max_fields(settings), max_part_size=settings.max_text + SPARE)
    except HTTPException as error:
        raise invalid(str(error.detail)) from error


async def read_parameters(request: Request, settings: ServerSettings) -> dict[str, Any]:
    """Return the parameters of a request by name; a name that a form or a query string repeats has a list.

    Raises:
        RequestError: the body is no JSON object although it says so, or no form, or there are too many parameters.
    """
    await receive_body(request, settings)
    kind = _kind(request)
    if kind == "application/json" or kind.endswith("+json"):
        body = await request.body()
        return await prepare(len(body), _json_object, body)
    values = query_parameters(request, settings)
    if kind == PARTS:
        values |= _plain((await request.form()).multi_items())
    elif kind == FORM:
        body = await request.body()
        values |= await prepare(len(body), _form, body, _max_fields(settings))
    return values


def query_parameters(request: Request, settings: ServerSettings) -> dict[str, Any]:
    """Return the parameters of the query string by name; a repeated name has a list.

    Raises:
        RequestError: there are too many.
    """
    return _form(request.scope.get("query_string", b""), _max_fields(settings))


def text_of(values: Mapping[str, Any], name: str) -> str:
    """Return a parameter that must be a text.

    Raises:
        RequestError: it is missing, or no text.
    """
    value = values.get(name)
    if value is None or value == "":
        raise invalid(f"missing {name} parameter")
    if not isinstance(value, str):
        raise invalid(f"{name} parameter is not a string")
    return value


def texts_of(values: Mapping[str, Any], name: str = "q") -> tuple[list[str], bool]:
    """Return the texts of a parameter, and whether they came as a list.

    Raises:
        RequestError: it is missing, or neither a text nor a list of texts.
    """
    texts = values.get(name)
    if texts is None or texts == "":
        raise invalid(f"missing {name} parameter")
    if isinstance(texts, str):
        return [texts], False
    if not isinstance(texts, list) or any(not isinstance(text, str) for text in texts):
        raise invalid(f"{name} parameter is not a string or a list of strings")
    return texts, True


def flag_of(values: Mapping[str, Any], name: str) -> bool:
    """Return a parameter that is true or false; false where it is missing.

    Raises:
        RequestError: it is neither.
    """
    value = values.get(name, False)
    if isinstance(value, str):
        value = {"true": True, "1": True, "false": False, "0": False, "": False}.get(value.lower(), value)
    if not isinstance(value, bool):
        raise invalid(f"{name} parameter is not true or false")
    return value


def count_of(values: Mapping[str, Any], name: str, limit: int) -> int:
    """Return a parameter that is a number from 0 to a limit; 0 where it is missing.

    Raises:
        RequestError: it is none, or above the limit.
    """
    value = values.get(name, 0)
    try:
        # int(True) is 1, and int("1_0") is 10
        number = (
            0 if value in ("", None) else int(str(value)) if str(value).isdecimal() and len(str(value)) < 10 else None
        )
    except ValueError:
        number = None
    if number is None:
        raise invalid(f"{name} parameter is not a number")
    if number > limit:
        raise invalid(f"{name} parameter must be <= {limit}")
    return number


def glossary_of(values: Mapping[str, Any], name: str = "glossary") -> Glossary | None:
    """Return a parameter that is a list of pairs of texts, or an object; None where it is missing.

    Outside JSON it is JSON itself.

    Raises:
        RequestError: it is none, has too many terms, or one that is no term.
    """
    value = values.get(name)
    if isinstance(value, str) and value:
        if len(value) > SPARE:
            raise invalid(f"{name} parameter must have <= {SPARE} characters")
        try:
            value = json.loads(value)
        # RecursionError: nested too deep
        except (ValueError, RecursionError):
            raise invalid(f"{name} parameter is not JSON") from None
    if not value:
        return None
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or any(
        not isinstance(pair, list | tuple) or len(pair) != 2 or any(not isinstance(text, str) for text in pair)
        for pair in pairs
    ):
        raise invalid(f'{name} parameter is not a list of pairs such as [["source", "target"]], or an object')
    if len(pairs) > MAX_TERMS:
        raise invalid(f"{name} parameter must have <= {MAX_TERMS} terms")
    try:
        return Glossary(tuple((source, target) for source, target in pairs))
    except ArgumentError as error:
        raise invalid(f"{name} parameter: {error}") from error


def _kind(request: Request) -> str:
    kind = request.headers.get("content-type", "")
    if len(kind) > MAX_KIND:
        raise invalid(f"a content type may have at most {MAX_KIND:,} characters")
    return kind.partition(";")[0].strip().lower()


def _max_fields(settings: ServerSettings) -> int:
    return SPARE_FIELDS + settings.batch_limit if settings.batch_limit >= 0 else MAX_FIELDS


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        text = body.decode(json.detect_encoding(body))
        _check_structure(text)
        values = json.loads(text)
    # RecursionError: nested too deep
    except (ValueError, RecursionError):
        raise RequestError(400, "Invalid JSON format") from None
    if SURROGATE.search(text):
        # one half of a pair is no character, and nothing can read it
        try:
            json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise RequestError(400, "Invalid JSON format") from None
    if not isinstance(values, dict):
        raise RequestError(400, "Invalid JSON format")
    return values


def _check_structure(text: str) -> None:
    """Check what JSON holds beside its texts: a million lists would take a second in which no other thread runs.

    Raises:
        ValueError: it is more than the parameters of a request have.
    """
    if len(text) <= SPARE:
        return
    # without escapes each quote begins or ends a text
    bare = text.replace("\\\\", "").replace('\\"', "")
    # each text needs a comma too
    if bare.count('"') > 2 * SPARE or sum(map(len, bare.split('"')[::2])) > SPARE:
        raise ValueError


def _form(body: bytes, max_fields: int) -> dict[str, Any]:
    """Return the parameters of a form, or of a query string."""
    if body.count(b"&") >= max_fields:
        raise invalid(f"a form or a query may have at most {max_fields} parameters")
    pairs = (part.partition("=") for part in body.decode("latin-1").split("&") if part)
    return _plain((_unescaped(name), _unescaped(value)) for name, _, value in pairs)


def _unescaped(text: str) -> str:
    """Return a text of a form, whose characters are bytes.

    urllib's own function takes 170 bytes of memory for each of them.
    """
    text = ESCAPES.sub(lambda match: bytes.fromhex(match[0].replace("%", "")).decode("latin-1"), text.replace("+", " "))
    return text.encode("latin-1").decode("utf-8", "replace")


def _plain(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the values by name, texts with the line ends of this format, a list where a name is repeated."""
    values: dict[str, list[Any]] = {}
    for name, item in items:
        values.setdefault(name, []).append(
            item if isinstance(item, UploadFile) else item.replace("\r\n", "\n").replace("\r", "\n")
        )
    return {name: items if len(items) > 1 else items[0] for name, items in values.items()}
