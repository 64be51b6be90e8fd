"""The server's web pages: a translation page and the API documentation. They load nothing from other servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse

from attent.server.settings import ServerSettings
from attent.server.specification import specification
from attent.views.pages.page import web_file

# A page runs only its own scripts, calls only its own server, and cannot be embedded in another page.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
    "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


class Pages:
    """The pages of a server.

    Args:
        settings: the server's settings.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._specification = specification(settings)

    async def index(self, request: Request) -> HTMLResponse:
        """Answer GET / with the translation page."""
        return HTMLResponse(web_file("translate.html"), headers=HEADERS)

    async def spec(self, request: Request) -> Mapping[str, Any]:
        """Answer GET /spec."""
        return self._specification

    async def docs(self, request: Request) -> HTMLResponse:
        """Answer GET /docs."""
        return HTMLResponse(docs_page(self._specification), headers=HEADERS)


def docs_page(spec: Mapping[str, Any]) -> str:
    """Render an OpenAPI description as an HTML page.

    Args:
        spec: an OpenAPI 3.1 document that refers only to its own schemas.
    """
    info = spec["info"]
    parts = [f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>", f"<p>{escape(info['description'])}</p>"]
    parts.append('<p>The same <a href="spec">as OpenAPI</a>; <a href=".">a page to translate with</a>.</p>')
    for tag in spec["tags"]:
        parts.append(f"<h2>{escape(tag['description'])}</h2>")
        for path, methods in spec["paths"].items():
            parts += [
                _operation(method, path, value) for method, value in methods.items() if tag["name"] in value["tags"]
            ]
    parts.append("<h2>Schemas</h2>")
    for name, schema in spec["components"]["schemas"].items():
        parts.append(f'<section class="card" id="{escape(name)}"><h3>{escape(name)}</h3>{_schema(schema)}</section>')
    return web_file("docs.html").replace("{{title}}", escape(info["title"])).replace("{{body}}", "\n".join(parts))


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parts = [f"<h3><b>{method.upper()}</b> <code>{escape(path)}</code></h3><p>{escape(operation['summary'])}.</p>"]
    if body := operation.get("requestBody"):
        schema = next(iter(body["content"].values()))["schema"]
        parts.append(f"<h4>Request: {escape(', '.join(body['content']))}</h4>{_schema(schema)}")
    for status, answer in operation["responses"].items():
        contents = [
            f"{escape(kind)} {_schema(content['schema'])}" for kind, content in answer.get("content", {}).items()
        ]
        is_error = not status.startswith("2")
        # errors all have the same schema: one line each
        parts.append(
            f"<p><b>{status}</b> {escape(answer['description'])}</p>"
            if is_error
            else (
                f"<h4>{status}: "
                f"{escape(answer['description'])}</h4>{''.join(f'<div>{content}</div>' for content in contents)}"
            )
        )
    return f'<section class="card">{"".join(parts)}</section>'


def _schema(schema: Mapping[str, Any]) -> str:
    """Return a schema as HTML: an object's members as a table, or a value's kind."""
    if "properties" not in schema:
        return _kind(schema)
    rows = "".join(
        (
            f"<tr><th><code>{escape(name)}</code>{'' if name in schema.get('required', ()) else '?'}</th>"
            f"<td>{_kind(value)}</td></tr>"
        )
        for name, value in schema["properties"].items()
    )
    return f'<div class="frame"><table>{rows}</table></div>'


def _kind(schema: Mapping[str, Any]) -> str:
    return " ".join(filter(None, _kind_parts(schema)))


def _kind_parts(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of a value's description: its kind, its meaning, its bounds."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        yield f'<a href="#{name}">{name}</a>'
    kinds = schema.get("type", "")
    yield f"<i>{escape(kinds if isinstance(kinds, str) else ' or '.join(kinds))}</i>" if kinds else ""
    yield " or ".join(_kind(option) for option in schema.get("anyOf", ()))
    yield f"of {_kind(schema['items'])}" if "items" in schema else ""
    yield escape(schema.get("description", ""))
    for name in ("enum", "const", "default", "minimum", "maximum", "maxLength", "examples"):
        if name in schema:
            values = schema[name] if isinstance(schema[name], list) else [schema[name]]
            yield (
                f"<small>{name.removesuffix('s')}: "
                f"{', '.join(f'<code>{escape(str(value))}</code>' for value in values)}</small>"
            )
    if "properties" in schema:
        yield _schema(schema)
