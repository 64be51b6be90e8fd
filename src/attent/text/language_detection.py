"""The language of a text, among those that the server translates from, by py3langid."""

from __future__ import annotations

import copy
import threading
from collections.abc import Collection
from functools import cache
from typing import Any, NamedTuple


class Detection(NamedTuple):
    """A language and how sure it is, 0 to 100."""

    language: str
    confidence: float


class LanguageDetector:
    """Detects languages, among those of a server.

    Args:
        languages: the codes to choose from, such as en or zh-Hans; those that py3langid does not know cannot be
            detected.
    """

    def __init__(self, languages: Collection[str]) -> None:
        # a copy may choose languages of its own; the model, which takes most of a second to read, is shared
        self._identifier = copy.copy(_identifier())
        supported = {*self._identifier.nb_classes}
        # several codes of one language are told apart by nothing here: the first in order is meant
        self._codes = {base: code for code in sorted(languages, reverse=True) if (base := _base(code)) in supported}
        self._only = sorted(languages)[0] if languages else "en"
        if len(self._codes) > 1:
            self._identifier.set_languages([*self._codes])
        self._lock = threading.Lock()

    def detect(self, text: str) -> list[Detection]:
        """Return the languages of a text, the most probable first.

        The confidence is 0 where the text has no letters.
        """
        if not any(map(str.isalpha, text)):
            return [Detection(self._only, 0.0)]
        with self._lock:
            ranked = self._identifier.rank(text)
        detections = [
            Detection(self._codes[code], round(100 * float(share), 1)) for code, share in ranked if code in self._codes
        ]
        return [best for best in detections if best.confidence >= 1] or detections[:1] or [Detection(self._only, 0.0)]


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _base(code: str) -> str:
    return code.replace("_", "-").partition("-")[0].lower()
