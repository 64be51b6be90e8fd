import pytest
from pydantic import ValidationError

from attent.data.word_vectors.settings import VectorsSettings


def test_files_are_those_that_are_given() -> None:
    assert VectorsSettings().files == {}
    assert VectorsSettings(target="a.txt", source="b.bin").files == {"source": "b.bin", "target": "a.txt"}


def test_nothing_is_frozen_without_a_file() -> None:
    assert VectorsSettings(source="a.txt", frozen=True).frozen
    with pytest.raises(ValidationError, match="frozen needs word vectors: give source, target or text"):
        VectorsSettings(frozen=True)
