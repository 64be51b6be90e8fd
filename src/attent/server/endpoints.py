"""Endpoints that translate texts, compatible with LibreTranslate's interface and with OpenAI's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from attent.alignment.pharaoh import pharaoh
from attent.documents import FORMATS
from attent.server.batcher import prepare
from attent.server.body import DetectParameters, OpenAIParameters, TranslateParameters, read_parameters
from attent.server.engines import ServedRun
from attent.server.errors import OBJECTS, Event, RequestError, error_body, event_stream, invalid
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
    """The endpoints for LibreTranslate clients, and those for OpenAI-compatible clients below /v1.

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
        options = TranslationOptions(wish.alternatives, wish.alignment, wish.format, glossary=wish.glossary)
        if not wish.stream:
            return _answer(await self._service.translate(texts, wish.source, wish.target, options), wish)

        async def events() -> AsyncGenerator[Event, None]:
            has_tokens = wish.stream == "tokens"
            async for item in self._service.stream(texts, wish.source, wish.target, options, has_tokens=has_tokens):
                if isinstance(item, TextPiece):
                    kind = "piece" if item.is_final else "growing"
                    yield {"kind": kind, "text": item.text, "sentence": item.sentence, "piece": item.piece}
                else:
                    yield {"kind": "done", **_answer(item, wish)}

        return await event_stream(
            events(), lambda error: {"kind": "error", "error": error.message, "status": error.status}
        )

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
        settings, first = self._settings, self._service.catalog.runs[0]
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

    async def openai_models(self, request: Request) -> dict[str, Any]:
        """Answer GET /v1/models with the runs, each named after its languages."""
        models = [
            {
                "id": model_name(run),
                "object": "model",
                "created": run.created,
                "owned_by": "attent",
                "source_language": run.source,
                "target_language": run.target,
            }
            for run in self._service.catalog.runs
        ]
        return {"object": "list", "data": models}

    async def openai_translations(self, request: Request) -> dict[str, Any] | Response:
        """Answer POST /v1/translations."""
        values = await read_parameters(request, self._settings)
        wish = OpenAIParameters.of(values)
        source, target = wish.source_language, wish.target_language
        if wish.model:
            run = next((run for run in self._service.catalog.runs if model_name(run) == wish.model), None)
            if run is None:
                raise RequestError(404, f"The model {wish.model} does not exist: GET /v1/models lists those that do")
            source = source or run.source
            if (source, target) != (run.source, run.target):
                raise invalid(f"the model {wish.model} translates {run.source} to {run.target}")
        texts = check_size(self._settings, wish.input)
        self._gatekeeper.admit(request, values, len(texts))
        if not wish.stream:
            return self._openai_answer(await self._service.translate(texts, source or AUTO, target), source, target)

        async def events() -> AsyncGenerator[Event, None]:
            async for item in self._service.stream(texts, source or AUTO, target):
                if not isinstance(item, TextPiece):
                    yield {"type": "translation.done", **self._openai_answer(item, source, target)}
                # a delta cannot be replaced later, as the beginning of a sentence would be
                elif item.is_final:
                    indices = {"index": item.text, "sentence": item.sentence}
                    yield {"type": "translation.text.delta", **indices, "delta": item.piece}

        return await event_stream(events(), lambda error: {"type": "error", **error_body(OBJECTS, error)})

    def _openai_answer(self, results: Sequence[TranslatedText], source: str, target: str) -> dict[str, Any]:
        data: list[dict[str, Any]] = []
        for index, result in enumerate(results):
            language = result.detection.language if result.detection else source
            run = self._service.catalog.find(language, target)
            data.append(
                {
                    "object": "translation",
                    "index": index,
                    "text": result.text,
                    "source_language": language,
                    # a text that is already in the target language passes through no model
                    "model": model_name(run) if run else None,
                }
            )
        return {"object": "list", "data": data, "target_language": target}


def model_name(run: ServedRun) -> str:
    """Return the run's name for clients, such as en-de."""
    return f"{run.source}-{run.target}"


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
    if wish.alignment:
        values["alignment"] = [pharaoh(result.links) for result in results]
    return values if isinstance(wish.q, list) else {name: value[0] for name, value in values.items()}
