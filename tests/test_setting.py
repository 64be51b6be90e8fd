from __future__ import annotations

from typing import get_type_hints

from attent.server.settings import ServerSettings
from attent.setting import Bound, Help


def test_defaults_of_the_server_are_within_their_bounds_and_described() -> None:
    settings, described = ServerSettings(), 0
    for name, annotation in get_type_hints(ServerSettings, include_extras=True).items():
        value = getattr(settings, name)
        for fact in getattr(annotation, "__metadata__", ()):
            described += isinstance(fact, Help) and fact.text.endswith(".")
            if isinstance(fact, Bound) and value is not None:
                assert fact.minimum is None or value >= fact.minimum
                assert fact.maximum is None or value <= fact.maximum
    assert described == 22
