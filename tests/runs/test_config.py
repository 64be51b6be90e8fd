import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from attent.models.settings import EncoderSettings, TransformerSettings
from attent.runs.config import FORMAT, RunConfig, read_config, version_of, write_config

TRANSLATES = RunConfig(model=TransformerSettings())
FILLS = RunConfig(task="fill-mask", tokenizers={"text": "word"}, model=EncoderSettings(), sizes=(8, 7))
CLASSIFIES = RunConfig(task="classify", tokenizers={}, sizes=(3, 2), model=EncoderSettings(), files=("labels.json",))


@pytest.mark.parametrize("config", [TRANSLATES, FILLS, CLASSIFIES])
def test_what_is_written_is_read(tmp_path: Path, config: RunConfig) -> None:
    write_config(config, tmp_path)
    assert read_config(tmp_path) == config
    assert json.loads((tmp_path / "config.json").read_text())["format"] == FORMAT


@pytest.mark.parametrize("form", [1, 2])
def test_a_config_before_there_were_tasks_is_a_translators(tmp_path: Path, form: int) -> None:
    write_config(TRANSLATES, tmp_path)
    file = tmp_path / "config.json"
    later = ("task", "files", "sizes", "state") if form == 1 else ("task", "files", "sizes")
    content = {name: value for name, value in json.loads(file.read_text()).items() if name not in later}
    file.write_text(json.dumps(content | {"format": form}))
    assert read_config(tmp_path) == TRANSLATES.model_copy(update={"format": form})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"task": "classify", "tokenizers": {}}, "a run without tokenizers must have sizes"),
        ({"files": ("../labels.json",)}, "files must be in the run folder"),
        ({"sizes": (10**30, 5)}, "sizes.0"),
        ({"sizes": (7, 0)}, "sizes.1"),
        ({"alignment": {"layer": 4}}, "alignment.layer must be from 0 to 3, got 4"),
        ({"alignment": {"head": 4}}, "alignment.head must be from 0 to 3, got 4"),
        ({"model": {"kind": "rnn"}, "alignment": {"layer": 1}}, "alignment.layer must be from 0 to 0, got 1"),
        ({"alignment": {"layer": -1}}, "alignment.layer"),
        ({"alignment": {"about": "said"}}, "alignment.about"),
    ],
)
def test_what_does_not_go_together_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RunConfig.model_validate({"model": {}} | values)


def test_a_package_that_is_missing_has_no_version() -> None:
    assert version_of("no-such-package") == "unknown"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ({"source_language": "zh", "target_language": "pt-BR"}, "zh → pt-BR"),
        ({"target_language": "en"}, "? → en"),
        ({}, ""),
        # of a damaged file
        ({"source_language": 3, "target_language": "\x1b[31m"}, ""),
        ("text", ""),
    ],
)
def test_languages_are_said_as_far_as_they_are_named(text: object, expected: str) -> None:
    assert TRANSLATES.model_copy(update={"corpus": {"text": text}}).languages == expected
    assert TRANSLATES.model_copy(update={"corpus": {}}).languages == ""
