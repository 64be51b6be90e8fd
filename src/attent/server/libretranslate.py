"""LibreTranslate's endpoints: parameters in, JSON out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from attent.alignment.pharaoh import pharaoh
from attent.server.batcher import prepare
from attent.server.body import count_of, flag_of, glossary_of, read_parameters, text_of, texts_of
from attent.server.errors import Event, RequestError, event_stream
from attent.server.limits import Gatekeeper, key_of
from attent.server.service import (
    AUTO,
    Format,
    TextPiece,
    TranslatedText,
    TranslationOptions,
    TranslationService,
    check_size,
    language_name,
)

# Seconds between requests of a page that types; LibreTranslate's own number.
FRONTEND_TIMEOUT = 500
# A value of stream besides true and false.
TOKENS = "tokens"
FORMATS: tuple[Format, ...] = ("text", "html")


class LibreTranslateEndpoints:
    """The endpoints that clients of LibreTranslate call.

    Args:
        service: translates.
        gatekeeper: admits requests.
        formats: endings of the documents that can be translated.
    """

    def __init__(self, service: TranslationService, gatekeeper: Gatekeeper, formats: tuple[str, ...] = ()) -> None:
        self._service, self._gatekeeper, self._formats = service, gatekeeper, formats

    async def translate(self, request: Request) -> dict[str, Any] | Response:
        """Answer POST /translate."""
        settings = self._service.settings
        values = await read_parameters(request, settings)
        texts, is_list = texts_of(values)
        source, target = text_of(values, "source"), text_of(values, "target")
        kind = _check_format(values.get("format") or "text")
        alternatives = count_of(values, "alternatives", settings.alternatives_limit)
        check_size(settings, texts, is_list=is_list)
        self.admit(request, values, len(texts))
        options = TranslationOptions(alternatives, flag_of(values, "alignment"), kind, glossary=glossary_of(values))
        is_auto, has_tokens = source == AUTO, values.get("stream") == TOKENS
        if not has_tokens and not flag_of(values, "stream"):
            return _answer(
                await self._service.translate(texts, source, target, options), options, is_list=is_list, is_auto=is_auto
            )

        async def events() -> AsyncGenerator[Event, None]:
            async for item in self._service.stream(texts, source, target, options, has_tokens=has_tokens):
                if isinstance(item, TextPiece):
                    yield {
                        "kind": "piece" if item.is_final else "growing",
                        "text": item.text,
                        "sentence": item.sentence,
                        "piece": item.piece,
                    }
                else:
                    yield {"kind": "done", **_answer(item, options, is_list=is_list, is_auto=is_auto)}

        return await event_stream(
            events(), lambda error: {"kind": "error", "error": error.message, "status": error.status}
        )

    async def detect(self, request: Request) -> list[dict[str, Any]]:
        """Answer POST /detect."""
        values = await read_parameters(request, self._service.settings)
        text = text_of(values, "q")
        check_size(self._service.settings, [text], is_list=False)
        self.admit(request, values, 1)
        detections = await prepare(len(text), self._service.detect, text)
        return [{"confidence": confidence, "language": language} for language, confidence in detections]

    async def languages(self, request: Request) -> list[dict[str, Any]]:
        """Answer GET /languages."""
        sources = self._service.catalog.sources
        return [{"code": code, "name": language_name(code), "targets": targets} for code, targets in sources.items()]

    async def frontend_settings(self, request: Request) -> dict[str, Any]:
        """Answer GET /frontend/settings."""
        settings, first = self._service.settings, self._service.catalog.runs[0]
        return {
            "charLimit": settings.char_limit,
            "frontendTimeout": FRONTEND_TIMEOUT,
            "apiKeys": self._gatekeeper.has_keys,
            "keyRequired": settings.require_api_key,
            "suggestions": False,
            "filesTranslation": bool(self._formats),
            "supportedFilesFormat": list(self._formats),
            "language": {
                side: {"code": code, "name": language_name(code)}
                for side, code in (("source", first.source), ("target", first.target))
            },
        }

    async def suggest(self, request: Request) -> dict[str, Any]:
        """Refuse POST /suggest: no suggestions are collected."""
        raise RequestError(403, "Suggestions are disabled on this server.")

    def admit(self, request: Request, values: dict[str, Any], texts: int, *, is_admitted: bool = False) -> None:
        """Count the texts of a request, or refuse it unless it is admitted."""
        self._gatekeeper.admit(request, key_of(request, values), texts, is_admitted=is_admitted)


def _answer(
    results: list[TranslatedText], options: TranslationOptions, *, is_list: bool, is_auto: bool
) -> dict[str, Any]:
    values: dict[str, list[Any]] = {"translatedText": [result.text for result in results]}
    if is_auto:
        values["detectedLanguage"] = [
            {"confidence": result.detection.confidence, "language": result.detection.language}
            for result in results
            if result.detection
        ]
    if options.alternatives:
        values["alternatives"] = [list(result.alternatives) for result in results]
    if options.has_links:
        values["alignment"] = [pharaoh(result.links) for result in results]
    return values if is_list else {name: value[0] for name, value in values.items()}


def _check_format(name: str) -> Format:
    """Return the format of a text.

    Raises:
        RequestError: it is none.
    """
    for text_format in FORMATS:
        if name == text_format:
            return text_format
    raise RequestError(400, f"{name} format is not supported")
