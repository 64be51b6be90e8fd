"""Endpoints that translate texts, compatible with LibreTranslate's interface."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from attent.alignment.pharaoh import pharaoh
from attent.documents import FORMATS
from attent.server.batcher import prepare
from attent.server.body import DetectParameters, TranslateParameters, read_parameters
from attent.server.errors import Event, RequestError, event_stream, invalid
from attent.server.limits import Gatekeeper
from attent.server.service import (
    AUTO,
    TextPiece,
    TranslatedText,
    TranslationOptions,
    TranslationService,
    check_size,
    language_name,
)

# Milliseconds between requests of a page while its user types; the same value as LibreTranslate's.
FRONTEND_TIMEOUT = 500


class TextEndpoints:
    """The endpoints for LibreTranslate clients.

    Args:
        service: the service that translates.
        gatekeeper: checks API keys and limits.
    """

    def __init__(self, service: TranslationService, gatekeeper: Gatekeeper) -> None:
        self._service, self._settings, self._gatekeeper = service, service.settings, gatekeeper

    async def translate(self, request: Request) -> dict[str, Any] | Response:
        """Answer POST /translate."""
        values = await read_parameters(request, self._settings)
        wish, limit = TranslateParameters.of(values), self._settings.alternatives_limit
        if wish.alternatives > limit:
            raise invalid(f"alternatives parameter must be <= {limit}")
        texts = check_size(self._settings, wish.q)
        self._gatekeeper.admit(request, values, len(texts))
        options = TranslationOptions(
            wish.alternatives, wish.alignment, wish.format, wish.glossary, wish.confidence, wish.minimum_confidence
        )
        if not wish.stream:
            return _answer(await self._service.translate(texts, wish.source, wish.target, options), wish)

        async def events() -> AsyncGenerator[Event, None]:
            async for item in self._service.stream(texts, wish.source, wish.target, options):
                if isinstance(item, TextPiece):
                    yield {"kind": "piece", "text": item.text, "sentence": item.sentence, "piece": item.piece}
                else:
                    yield {"kind": "done", **_answer(item, wish)}

        return await event_stream(events())

    async def detect(self, request: Request) -> list[dict[str, Any]]:
        """Answer POST /detect."""
        values = await read_parameters(request, self._settings)
        text = DetectParameters.of(values).q
        check_size(self._settings, text)
        self._gatekeeper.admit(request, values, 1)
        detections = await prepare(len(text), self._service.detect, text)
        return [{"confidence": confidence, "language": language} for language, confidence in detections]

    async def languages(self, request: Request) -> list[dict[str, Any]]:
        """Answer GET /languages."""
        sources = self._service.catalog.sources
        return [{"code": code, "name": language_name(code), "targets": targets} for code, targets in sources.items()]

    async def frontend_settings(self, request: Request) -> dict[str, Any]:
        """Answer GET /frontend/settings."""
        settings, first = self._settings, self._service.catalog.entries[0]
        formats = [] if settings.disable_files_translation else [*FORMATS]
        return {
            "charLimit": settings.char_limit,
            "frontendTimeout": FRONTEND_TIMEOUT,
            "apiKeys": self._gatekeeper.has_keys,
            "keyRequired": settings.require_api_key,
            "suggestions": False,
            "filesTranslation": bool(formats),
            "supportedFilesFormat": formats,
            "language": {
                side: {"code": code, "name": language_name(code)}
                for side, code in (("source", first.source), ("target", first.target))
            },
        }

    async def suggest(self, request: Request) -> dict[str, Any]:
        """Refuse POST /suggest: suggestions are not collected."""
        raise RequestError(403, "Suggestions are disabled on this server.")


def _answer(results: Sequence[TranslatedText], wish: TranslateParameters) -> dict[str, Any]:
    values: dict[str, list[Any]] = {"translatedText": [result.text for result in results]}
    if wish.source == AUTO:
        values["detectedLanguage"] = [
            {"confidence": result.detection.confidence, "language": result.detection.language}
            for result in results
            if result.detection
        ]
    if wish.alternatives:
        values["alternatives"] = [list(result.alternatives) for result in results]
    if any(result.pivot for result in results):
        values["pivot"] = [result.pivot for result in results]
    if wish.alignment:
        values["alignment"] = [pharaoh(result.links) for result in results]
    if wish.confidence or any(result.confidences for result in results):
        values["confidence"] = [list(result.confidences) for result in results]
    return values if isinstance(wish.q, list) else {name: value[0] for name, value in values.items()}
