"""The parameters of a request: from JSON, from a form, or from the query string."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import FormData, ImmutableMultiDict, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from attent.decoding.glossary import Glossary
from attent.errors import ArgumentError
from attent.serve.translation.errors import RequestError, invalid
from attent.serve.translation.settings import ServerSettings

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
# An escape of a character beyond U+FFFF, or of half of one.
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# Parts of a form: a text each, beside the other parameters.
SPARE_FIELDS = 16
# Of the glossary of a request.
MAX_TERMS = 200


async def read_parameters(request: Request, settings: ServerSettings) -> dict[str, Any]:
    """Return the parameters of a request by name; a name that a form or a query string repeats has a list.

    Raises:
        RequestError: the body is no JSON object although it says so, or no form.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return _json_object(await request.body())
    values: dict[str, Any] = _plain(request.query_params)
    if kind in FORMS:
        fields = SPARE_FIELDS + max(settings.batch_limit, 0) if settings.batch_limit >= 0 else 1_000
        try:
            values |= _plain(await request.form(max_files=1, max_fields=fields, max_part_size=settings.max_body))
        except HTTPException as error:
            raise invalid(str(error.detail)) from error
    return values


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
        number = 0 if value in ("", None) else int(str(value)) if str(value).isdecimal() and len(str(value)) < 10 else None
    except ValueError:
        number = None
    if number is None:
        raise invalid(f"{name} parameter is not a number")
    if number > limit:
        raise invalid(f"{name} parameter must be <= {limit}")
    return number


def glossary_of(values: Mapping[str, Any], name: str = "glossary") -> Glossary | None:
    """Return a parameter that is a list of pairs of texts, or an object; None where it is missing. Outside JSON it is JSON itself.

    Raises:
        RequestError: it is none, has too many terms, or one that is no term.
    """
    value = values.get(name)
    if isinstance(value, str) and value:
        try:
            value = json.loads(value)
        # RecursionError: nested too deep
        except (ValueError, RecursionError):
            raise invalid(f"{name} parameter is not JSON") from None
    if not value:
        return None
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or any(
        not isinstance(pair, list | tuple) or len(pair) != 2 or any(not isinstance(text, str) for text in pair) for pair in pairs
    ):
        raise invalid(f'{name} parameter is not a list of pairs such as [["source", "target"]], or an object')
    if len(pairs) > MAX_TERMS:
        raise invalid(f"{name} parameter must have <= {MAX_TERMS} terms")
    try:
        return Glossary(tuple((source, target) for source, target in pairs))
    except ArgumentError as error:
        raise invalid(f"{name} parameter: {error}") from error


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        text = body.decode(json.detect_encoding(body))
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


def _plain(values: FormData | ImmutableMultiDict[str, Any]) -> dict[str, Any]:
    """Return the values by name, texts with the line ends of this format, a list where a name is repeated."""
    result: dict[str, Any] = {}
    for name in dict.fromkeys(values.keys()):
        items = [item if isinstance(item, UploadFile) else item.replace("\r\n", "\n").replace("\r", "\n") for item in values.getlist(name)]
        result[name] = items if len(items) > 1 else items[0]
    return result
