"""POST /v1/translations and GET /v1/models: the same translations for clients that speak as OpenAI's do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from attent.server.body import flag_of, read_parameters, text_of, texts_of
from attent.server.engines import ServedRun
from attent.server.errors import OBJECTS, Event, RequestError, error_body, event_stream, invalid
from attent.server.service import AUTO, TextPiece, TranslatedText, TranslationService, check_size


class OpenAIEndpoints:
    """The endpoints below /v1.

    Args:
        service: translates.
        admit: counts the texts of a request with such parameters, or refuses it.
    """

    def __init__(self, service: TranslationService, admit: Callable[[Request, dict[str, Any], int], None]) -> None:
        self._service, self._admit = service, admit

    async def models(self, request: Request) -> dict[str, Any]:
        """Answer GET /v1/models: the runs, each named by its languages."""
        return {"object": "list", "data": [_model(run) for run in self._service.catalog.runs]}

    async def translations(self, request: Request) -> dict[str, Any] | Response:
        """Answer POST /v1/translations."""
        service = self._service
        values = await read_parameters(request, service.settings)
        texts, is_list = texts_of(values, "input")
        target = text_of(values, "target_language")
        source = text_of(values, "source_language") if values.get("source_language") else None
        model = text_of(values, "model") if values.get("model") else None
        if model is not None:
            run = next((run for run in service.catalog.runs if model_name(run) == model), None)
            if run is None:
                raise RequestError(404, f"The model {model} does not exist: GET /v1/models lists those that do")
            source = source or run.source
            if (source, target) != (run.source, run.target):
                raise invalid(f"the model {model} translates {run.source} to {run.target}")
        check_size(service.settings, texts, is_list=is_list)
        self._admit(request, values, len(texts))
        if flag_of(values, "stream"):
            events = self._events(texts, source or AUTO, target)
            return await event_stream(events, lambda error: {"type": "error", **error_body(OBJECTS, error)})
        return self._answer(await service.translate(texts, source or AUTO, target), source, target)

    async def _events(self, texts: Sequence[str], source: str, target: str) -> AsyncGenerator[Event, None]:
        async for item in self._service.stream(texts, source, target):
            if not isinstance(item, TextPiece):
                answer = self._answer(item, None if source == AUTO else source, target)
                yield {"type": "translation.done", **answer}
            # a delta cannot be taken back, as the beginning of a sentence would be
            elif item.is_final:
                yield {
                    "type": "translation.text.delta",
                    "index": item.text,
                    "sentence": item.sentence,
                    "delta": item.piece,
                }

    def _answer(self, results: Sequence[TranslatedText], source: str | None, target: str) -> dict[str, Any]:
        data: list[dict[str, Any]] = []
        for index, result in enumerate(results):
            language = result.detection.language if result.detection else source
            run = self._service.catalog.find(language or "", target)
            # a text that is in the target's language already has passed no model
            name = model_name(run) if run else None
            data.append(
                {
                    "object": "translation",
                    "index": index,
                    "text": result.text,
                    "source_language": language,
                    "model": name,
                }
            )
        return {"object": "list", "data": data, "target_language": target}


def model_name(run: ServedRun) -> str:
    """Return the name of a run for clients: en-de."""
    return f"{run.source}-{run.target}"


def _model(run: ServedRun) -> dict[str, Any]:
    return {
        "id": model_name(run),
        "object": "model",
        "created": run.created,
        "owned_by": "attent",
        "source_language": run.source,
        "target_language": run.target,
    }
