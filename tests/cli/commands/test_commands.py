from __future__ import annotations

import pytest

from attent.cli.commands import ORDER, CommandFolder, aliases


def test_commands_are_found_by_reading_the_folder_in_the_order_of_the_help() -> None:
    assert tuple(CommandFolder()) == ORDER


def test_an_unknown_command_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        CommandFolder()["wlak"]


ALIASES = [
    ("align", "--symmetrise", "--symmetrization"),
    ("classify", "--best", "--top-k"),
    ("explore", "--normaliser", "--normalizer"),
    ("export", "--quantisation", "--quantization"),
    ("export", "--sample", "--source"),
    ("fill", "--best", "--top-k"),
    ("walk", "--normaliser", "--normalizer"),
    ("bench train", "--tokens", "--batch-tokens"),
    ("data multi30k", "--to", "--out"),
    ("data date-languages", "--to", "--out"),
]


@pytest.mark.parametrize(("words", "former", "present"), ALIASES)
def test_former_options_are_accepted_as_the_present_ones_and_not_listed(attent, words: str, former: str, present: str) -> None:
    command = CommandFolder()[words.split()[0]]
    for word in words.split()[1:]:
        command = command.commands[word]
    options = {name: option for option in command.params for name in option.opts}
    assert options[former].name == options[present].name
    assert options[former].hidden
    listed = {word.strip(",") for line in attent(*words.split(), "--help").out for word in line.split()}
    assert present in listed
    assert former not in listed


def test_former_options_reach_their_commands(attent) -> None:
    for name in ("--normaliser", "--normalizer"):
        assert attent("walk", "a b", name, "sparsemax").out == attent("walk", "a b", "--normalizer", "sparsemax").out != []
        assert attent("walk", "a b", name, "softmaxx").err[0].startswith("attent: unknown normalizer 'softmaxx'")


def test_an_option_without_former_spellings_has_no_aliases() -> None:
    assert not list(aliases(CommandFolder()["walk"].params[0], {"--normaliser": "--normalizer"}))
