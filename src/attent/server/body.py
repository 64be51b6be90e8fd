"""Reading a request's parameters from JSON, a form, or the query string."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    PlainValidator,
    StrictBool,
    StrictInt,
    ValidationError,
    WithJsonSchema,
)
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from attent.documents import FORMATS
from attent.errors import ArgumentError
from attent.server.batcher import prepare
from attent.server.errors import RequestError, invalid
from attent.server.settings import SPARE, ServerSettings
from attent.tasks.translation.glossary import Glossary

FORM, PARTS = "application/x-www-form-urlencoded", "multipart/form-data"
# Maximum characters of a content type; python-multipart is slow to parse longer ones.
MAX_KIND = 1_000
# The escape of a surrogate: half of a character beyond U+FFFF.
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# Escaped bytes of a form; the length is limited because matching a long run takes much memory.
ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2}){1,1000}")
# Parameters of a form or a query string besides one for each text.
SPARE_FIELDS = 16
# Maximum parameters if the number of texts is unlimited.
MAX_FIELDS = 1_000
# Maximum terms of a request's glossary.
MAX_TERMS = 200
FLAGS = {"true": True, "1": True, "false": False, "0": False}
# Problem reported for a parameter of the wrong type; for all others, that it is not a string.
PROBLEMS = {
    "q": " is not a string or a list of strings",
    **dict.fromkeys(("alignment", "confidence", "stream"), " is not true or false"),
    "alternatives": " is not a number",
    "minimum_confidence": " is not a number from 0 to 1",
}


async def receive_body(request: Request, settings: ServerSettings) -> None:
    """Read a whole body; a multipart form is parsed as it arrives, and its documents are stored on disk.

    Raises:
        RequestError: a form is malformed or has too many parts.
    """
    if _kind(request) != PARTS:
        await request.body()
        return
    try:
        await request.form(max_files=1, max_fields=_max_fields(settings), max_part_size=settings.max_text + SPARE)
    except HTTPException as error:
        raise invalid(str(error.detail)) from error


async def read_parameters(request: Request, settings: ServerSettings) -> dict[str, Any]:
    """Return a request's parameters by name; a name repeated in a form or a query string has a list of values.

    Raises:
        RequestError: the body is not a JSON object or a form as declared, or there are too many parameters.
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
    """Return the query string's parameters by name; a repeated name has a list of values.

    Raises:
        RequestError: there are too many.
    """
    return _form(request.scope.get("query_string", b""), _max_fields(settings))


def _as_flag(value: object) -> object:
    return FLAGS.get(value.lower(), value) if isinstance(value, str) else value


def _as_number(value: object) -> object:
    # int("1_0") is 10
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value


def _as_glossary(value: object) -> Glossary | None:
    """Return the glossary given by a list of text pairs or an object; in a form or query it is JSON in a string.

    Raises:
        ValueError: it is not a glossary, has too many terms, or has an invalid term.
    """
    if isinstance(value, str):
        if len(value) > SPARE:
            raise ValueError(f" must have <= {SPARE} characters")
        try:
            value = json.loads(value)
        # RecursionError: nested too deep
        except (ValueError, RecursionError):
            raise ValueError(" is not JSON") from None
    if not value:
        return None
    if isinstance(value, dict | list) and len(value) > MAX_TERMS:
        raise ValueError(f" must have <= {MAX_TERMS} terms")
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or any(
        not isinstance(pair, list | tuple) or len(pair) != 2 or any(not isinstance(text, str) for text in pair)
        for pair in pairs
    ):
        raise ValueError(' is not a list of pairs such as [["source", "target"]], or an object')
    try:
        return Glossary(tuple((source, target) for source, target in pairs))
    except ArgumentError as error:
        raise ValueError(f": {error}") from error


# stop at the first error: a client may send thousands of wrong items
Texts = str | Annotated[list[str], Field(fail_fast=True)]
Flag = Annotated[StrictBool, BeforeValidator(_as_flag)]
Number = Annotated[StrictInt, Field(ge=0), BeforeValidator(_as_number)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Key = Annotated[
    str, BeforeValidator(str), Field(description="A key of this server; or a Bearer token in Authorization.")
]
Terms = Annotated[
    Glossary | None,
    PlainValidator(_as_glossary),
    WithJsonSchema({"type": ["array", "object", "null"], "maxItems": MAX_TERMS, "maxProperties": MAX_TERMS}),
]


def _described(description: str, *examples: str, **more: Any) -> Any:
    return Field(description=description, examples=[*examples] or None, **more)


class Parameters(BaseModel):
    """The parameters of a request; unknown ones are ignored.

    The fields validate the request and also provide the server's specification.
    """

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Validate parameters; an empty one counts as missing.

        Raises:
            RequestError: one is wrong or missing.
        """
        try:
            return cls.model_validate(
                {name: value for name, value in values.items() if value is not None and value != ""}
            )
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
        name, kind = str(first["loc"][0]), first["type"]
        if name == "format":
            raise RequestError(400, f"{first['input']} format is not supported")
        if kind == "missing":
            raise invalid(f"missing {name} parameter")
        problem = str(first["ctx"]["error"]) if kind == "value_error" and "ctx" in first else PROBLEMS.get(name)
        raise invalid("empty file" if name == "file" else f"{name} parameter{problem or ' is not a string'}")


class TranslateParameters(Parameters):
    """Parameters of POST /translate."""

    q: Texts = _described("A text, or a list of texts.", "Two men are talking. It rains.")
    source: str = _described("The language of the texts; auto detects it for each of them.", "en")
    target: str = _described("The language to translate to.", "de")
    format: Literal["text", "html"] = _described("HTML keeps its tags, around their words.", default="text")
    alternatives: Number = _described("Further translations of each text.", default=0)
    alignment: Flag = _described("Whether to link the words of both texts.", default=False)
    glossary: Terms = _described("Terms with their translations: pairs of both, or an object.", default=None)
    confidence: Flag = _described("Whether to tell the confidence in each sentence and word.", default=False)
    minimum_confidence: Probability | None = _described(
        "The confidence below which a sentence stays untranslated; the server's unless given.", default=None
    )
    stream: Flag = _described("Whether to send sentences as they are translated.", default=False)
    api_key: Key = ""


class DetectParameters(Parameters):
    """Parameters of POST /detect."""

    q: str
    api_key: Key = ""


class DocumentParameters(Parameters, arbitrary_types_allowed=True):
    """Parameters of POST /translate_file."""

    file: Annotated[UploadFile, WithJsonSchema({"type": "string", "format": "binary"})] = _described(
        f"A document: {', '.join(FORMATS)}."
    )
    source: str = _described("The language of the document, or auto.", "en")
    target: str = _described("The language to translate to.", "de")
    api_key: Key = ""


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
        if SURROGATE.search(text):
            # a lone surrogate is not a character and cannot be encoded
            json.dumps(values, ensure_ascii=False).encode()
    # RecursionError: nested too deep
    except (ValueError, RecursionError):
        raise RequestError(400, "Invalid JSON format") from None
    if not isinstance(values, dict):
        raise RequestError(400, "Invalid JSON format")
    return values


def _check_structure(text: str) -> None:
    """Check how much JSON there is besides the texts: parsing a million lists blocks all other threads for a second.

    Raises:
        ValueError: it is more than the parameters of a request need.
    """
    if len(text) <= SPARE:
        return
    # once escapes are removed, each quote begins or ends a string
    bare = text.replace("\\\\", "").replace('\\"', "")
    # each text also needs a comma
    if bare.count('"') > 2 * SPARE or sum(map(len, bare.split('"')[::2])) > SPARE:
        raise ValueError


def _form(body: bytes, max_fields: int) -> dict[str, Any]:
    """Return the parameters of a form or a query string."""
    if body.count(b"&") >= max_fields:
        raise invalid(f"a form or a query may have at most {max_fields} parameters")
    pairs = (part.partition("=") for part in body.decode("latin-1").split("&") if part)
    return _plain((_unescaped(name), _unescaped(value)) for name, _, value in pairs)


def _unescaped(text: str) -> str:
    """Decode a percent-encoded text of a form, given as Latin-1.

    `urllib.parse.unquote_plus` would take 170 bytes of memory per character.
    """
    text = ESCAPES.sub(lambda match: bytes.fromhex(match[0].replace("%", "")).decode("latin-1"), text.replace("+", " "))
    return text.encode("latin-1").decode("utf-8", "replace")


def _plain(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the values by name, with normalized line ends; a repeated name has a list of values."""
    values: dict[str, list[Any]] = {}
    for name, item in items:
        values.setdefault(name, []).append(
            item if isinstance(item, UploadFile) else item.replace("\r\n", "\n").replace("\r", "\n")
        )
    return {name: items if len(items) > 1 else items[0] for name, items in values.items()}
