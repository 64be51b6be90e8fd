from __future__ import annotations

import pytest

from attent.cli.commands import ORDER, CommandFolder


def test_commands_are_found_by_reading_the_folder_in_the_order_of_the_help() -> None:
    assert tuple(CommandFolder()) == ORDER


def test_an_unknown_command_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        CommandFolder()["wlak"]
