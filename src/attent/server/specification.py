"""The server's OpenAPI 3.1 specification: every endpoint with its parameters, responses and errors."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from attent.server.body import (
    DetectParameters,
    DocumentParameters,
    Parameters,
    TranslateParameters,
)
from attent.server.settings import SPARE, ServerSettings

Schema = dict[str, Any]


def _text(description: str, *examples: str) -> Schema:
    return {"type": "string", "description": description, **({"examples": [*examples]} if examples else {})}


def _object(required: str = "", **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, **({"required": required.split()} if required else {})}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _one_or_list(item: Schema, description: str) -> Schema:
    return {"description": description, "anyOf": [item, _list(item)]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(schema: Schema, kind: str = "application/json") -> Schema:
    return {kind: {"schema": schema}}


class _Generator(GenerateJsonSchema):
    """Omits the titles that pydantic derives from names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _parameters(kind: type[Parameters]) -> Schema:
    """Return the schema of a request's parameters."""
    schema = kind.model_json_schema(schema_generator=_Generator)
    return {name: schema[name] for name in ("type", "properties", "required")}


FORMS = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
ERRORS = {
    400: "A parameter is missing or wrong, a language is not served, or an API key is needed.",
    403: "The API key is unknown, or the server does not do this.",
    413: "The body is too large.",
    429: ("Too many texts per minute, a full queue, or too many pending bytes: Retry-After has the seconds to wait."),
    500: "An unexpected error.",
    503: "The server ends, or the request took too long.",
    507: "The server has no room for the document.",
}
PLAIN = {"type": "string"}
LANGUAGE = {"type": "string", "description": "The code of a language.", "examples": ["en"]}
DETECTED = _object(
    "confidence language", confidence={"type": "number", "minimum": 0, "maximum": 100}, language=LANGUAGE
)
SCORE = {"type": "number", "minimum": 0, "maximum": 1}
CONFIDENCE = _list(
    _object(
        "text confidence words warnings translated",
        text=_text("The translation of the sentence."),
        confidence=SCORE,
        words=_list({"type": "array", "prefixItems": [PLAIN, SCORE], "minItems": 2, "maxItems": 2}),
        warnings=_list(_text("What is wrong with it.", "repeats itself", "source words 5-9 not attended to")),
        translated={"type": "boolean", "description": "False where the confidence was below the minimum."},
    )
)
LINKS = _text("Links between words parted by spaces, source-target, from 0.", "0-0 1-2")
LOADED = {
    "type": "object",
    "description": "Whether the run of each pair, such as en-de, is in memory; a request loads it.",
}
EVENTS = "With stream: server-sent events, a JSON object each, the last of kind done or error."


def _answers(description: str, content: Schema | None = None, *statuses: int) -> Schema:
    """Return an endpoint's responses: 200 and the errors."""
    answers: Schema = {"200": {"description": description, **({"content": content} if content else {})}}
    for status in statuses:
        header = (
            {"headers": {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}}
            if status == 429
            else {}
        )
        answers[str(status)] = {"description": ERRORS[status], "content": _content(_ref("Error")), **header}
    return answers


def _get(summary: str, description: str, content: Schema | None = None, tag: str = "server", **more: Any) -> Schema:
    return {"get": {"tags": [tag], "summary": summary, "responses": _answers(description, content), **more}}


def _post(summary: str, body: Schema, responses: Schema, *, kinds: tuple[str, ...] = FORMS) -> Schema:
    request = {"required": True, "content": {kind: {"schema": body} for kind in kinds}}
    return {"post": {"tags": ["translation"], "summary": summary, "requestBody": request, "responses": responses}}


# The named schemas of responses.
SCHEMAS: dict[str, Schema] = {
    "Error": _object("error", error=_text("The reason.", "Invalid request: missing q parameter")),
    "Translated": _object(
        "translatedText",
        translatedText=_one_or_list(PLAIN, "A text for a text, a list for a list; so are the others."),
        detectedLanguage=_one_or_list(DETECTED, "Where source is auto."),
        alternatives={"description": "Where some were asked for.", "anyOf": [_list(PLAIN), _list(_list(PLAIN))]},
        alignment=_one_or_list(LINKS, "Where it was asked for; empty for HTML."),
        pivot=_one_or_list(LANGUAGE, "The language between both, where no run translates directly."),
        confidence=_one_or_list(CONFIDENCE, "Each sentence's, where it was asked for or there is a minimum."),
    ),
    "Event": _object(
        "kind",
        kind={"enum": ["piece", "done", "error"], "description": "done has Translated's members too."},
        text={"type": "integer", "description": "Which of the texts."},
        sentence={"type": "integer", "description": "Which of its sentences."},
        piece=_text("The translated sentence with the spaces around it."),
        error=PLAIN,
        status={"type": "integer", "description": "The status that the error would have had."},
    ),
}

# Error statuses of an endpoint that translates.
USUAL = 400, 403, 413, 429, 500, 503
PAGE = _content(PLAIN, "text/html")
CODED = _object("code name", code=LANGUAGE, name=_text("In English.", "German"))
NAME = {"name": "name", "in": "path", "required": True, "schema": PLAIN}
# The endpoints by path.
PATHS: dict[str, Schema] = {
    "/translate": _post(
        "Translate texts",
        _ref("Translate"),
        _answers(
            f"The translations. {EVENTS}",
            _content(_ref("Translated")) | _content(_ref("Event"), "text/event-stream"),
            *USUAL,
        ),
    ),
    "/detect": _post(
        "Detect the language of a text",
        _parameters(DetectParameters),
        _answers(
            "Languages that it may be in, the likeliest first.", _content(_list(DETECTED)), 400, 403, 413, 429, 500
        ),
    ),
    "/translate_file": _post(
        "Translate a document",
        _parameters(DocumentParameters),
        _answers(
            "The address of the translation.",
            _content(_object("translatedFileUrl", translatedFileUrl=_text("To be fetched soon."))),
            *USUAL,
            507,
        ),
        kinds=("multipart/form-data",),
    ),
    "/download_file/{name}": _get(
        "A translated document",
        "The document.",
        _content({"type": "string", "format": "binary"}, "application/octet-stream"),
        "translation",
        parameters=[NAME],
    ),
    "/suggest": _post(
        "Suggest a better translation",
        _object("q s source target", q=PLAIN, s=_text("The suggestion."), source=LANGUAGE, target=LANGUAGE),
        {"403": {"description": "Suggestions are not collected.", "content": _content(_ref("Error"))}},
    ),
    "/languages": _get(
        "The languages that are served",
        "Each with those that it is translated to.",
        _content(
            _list(
                _object(
                    "code name targets",
                    code=LANGUAGE,
                    name=_text("In English.", "English"),
                    targets=_list(LANGUAGE),
                )
            )
        ),
        "translation",
    ),
    "/frontend/settings": _get(
        "The settings that a page needs",
        "The settings.",
        _content(
            _object(
                charLimit={"type": "integer", "description": "Characters of a text; -1 without a limit."},
                frontendTimeout={
                    "type": "integer",
                    "description": "Milliseconds between requests of a page that types.",
                },
                apiKeys={"type": "boolean"},
                keyRequired={"type": "boolean"},
                suggestions={"type": "boolean"},
                filesTranslation={"type": "boolean"},
                supportedFilesFormat=_list(_text("The ending of a document.", ".txt")),
                language=_object(source=CODED, target=CODED),
            )
        ),
    ),
    "/health": _get("Whether the server is alive", "It is.", _content(_object("status", status={"const": "ok"}))),
    "/ready": {
        "get": {
            "tags": ["server"],
            "summary": "Whether the server takes requests now",
            "responses": {
                status: {
                    "description": description,
                    "content": _content(_object("status loaded", status={"const": word}, loaded=LOADED)),
                }
                for status, description, word in (
                    ("200", "It does.", "ready"),
                    ("503", "The queue is full.", "busy"),
                )
            },
        }
    },
    "/metrics": {
        "get": {
            "tags": ["server"],
            "summary": "Numbers for Prometheus, without texts and addresses",
            "security": [{"metricsToken": []}, {}],
            "responses": _answers("The numbers.", _content(PLAIN, "text/plain"))
            | {"401": {"description": "A token is needed.", "content": _content(_ref("Error"))}},
        }
    },
    "/spec": _get("This description", "OpenAPI 3.1.", _content({"type": "object"})),
    "/": _get("A page to translate with", "The page.", PAGE),
    "/web/{name}": _get(
        "A script or a style sheet of the pages",
        "The file.",
        _content(PLAIN, "text/javascript") | _content(PLAIN, "text/css"),
        parameters=[NAME],
    ),
}


def _translate(settings: ServerSettings) -> Schema:
    """Return the schema of a translation request, with the server's limits."""
    schema = _parameters(TranslateParameters)
    text, texts = schema["properties"]["q"]["anyOf"]
    schema["properties"]["alternatives"]["maximum"] = settings.alternatives_limit
    if settings.char_limit >= 0:
        text["maxLength"] = texts["items"]["maxLength"] = settings.char_limit
    if settings.batch_limit >= 0:
        texts["maxItems"] = settings.batch_limit
    return schema


def specification(settings: ServerSettings) -> Mapping[str, Any]:
    """Return the server's specification.

    Args:
        settings: the server's settings; the specification includes its limits.
    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "attent serve",
            "version": version("attent"),
            "description": "Translations by LibreTranslate's interface. Parameters of a POST may come as JSON, as a "
            "form or in the query; a slash at the end of a path is accepted. Headers with the query may have 65,536 "
            f"bytes, a body with texts {settings.max_texts:,}, and the text to detect {settings.max_text + SPARE:,}.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": [
            {"name": "translation", "description": "Texts and documents."},
            {"name": "server", "description": "The server itself, and its pages."},
        ],
        "paths": PATHS,
        "components": {
            "schemas": {"Translate": _translate(settings)} | SCHEMAS,
            "securitySchemes": {
                "apiKey": {"type": "http", "scheme": "bearer", "description": "An API key."},
                "metricsToken": {"type": "http", "scheme": "bearer", "description": "The token of /metrics."},
            },
        },
        "security": [{"apiKey": []}] if settings.require_api_key else [{"apiKey": []}, {}],
    }
