from __future__ import annotations

from typing import get_type_hints

from attent.server.settings import ServerSettings
from attent.setting import Bound, Flag, Help


def test_a_flag_has_one_name_or_several() -> None:
    assert Flag("--open/--no-open").names == ("--open/--no-open",)
    assert Flag("--updates", "--steps").names == ("--updates", "--steps")
    assert Flag().names == ()


def test_defaults_of_the_server_are_within_their_bounds_and_described() -> None:
    settings, described = ServerSettings(), 0
    for name, annotation in get_type_hints(ServerSettings, include_extras=True).items():
        facts = getattr(annotation, "__metadata__", ())
        described += any(isinstance(fact, Help) and fact.text.endswith(".") for fact in facts)
        for bound in (fact for fact in facts if isinstance(fact, Bound)):
            value = getattr(settings, name)
            assert value is None or bound.minimum is None or value >= bound.minimum
            assert value is None or bound.maximum is None or value <= bound.maximum
    assert described == 22
