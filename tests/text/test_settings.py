from typing import Any

import pytest
from pydantic import ValidationError

from attent.text.settings import TextSettings, VectorsSettings

ONE = {"train": "a.tsv"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "nothing to train on"),
        ({"train_source": "a"}, "train takes one file"),
        (ONE | {"train_source": "a", "train_target": "b"}, "train takes one file"),
        (ONE | {"valid_target": "b"}, "valid takes one file"),
        ({"train": "-", "valid": "-"}, "only once"),
        (ONE | {"shared": True, "source_vocabulary": 300}, "shared tokenizer is set by"),
        (ONE | {"tokeniser": "bpe"}, "tokeniser"),
        (ONE | {"vocabulary": "many"}, "vocabulary"),
    ],
)
def test_what_does_not_fit_together_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TextSettings(**arguments)


def test_a_side_may_differ() -> None:
    settings = TextSettings(train="a.tsv", vocabulary=500, target_tokenizer="char", target_vocabulary="auto")
    assert settings.tokenizer_of("source") == ("bpe", 500)
    assert settings.tokenizer_of("target") == ("char", None)
    assert TextSettings(train="a.tsv").tokenizer_of("target") == ("bpe", None)
    assert VectorsSettings().files == {}
    assert VectorsSettings(target="a.txt", source="b.bin").files == {"source": "b.bin", "target": "a.txt"}
    assert VectorsSettings(source="a.txt", frozen=True).frozen
    with pytest.raises(ValidationError, match="frozen needs word vectors: give source, target or text"):
        VectorsSettings(frozen=True)
