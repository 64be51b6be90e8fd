import pytest

from attent.errors import ArgumentError
from attent.tasks.translation.evaluation import exact_match


def test_worked_by_hand() -> None:
    assert exact_match(["a", "b ", "c", "d"], ["a", "b", "c", "D"]) == 50.0


@pytest.mark.parametrize(("translations", "references"), [([], []), (["a"], []), (["a"], ["a", "b"])])
def test_there_must_be_a_translation_for_each_reference(translations: list[str], references: list[str]) -> None:
    with pytest.raises(ArgumentError, match=f"got {len(translations)} and {len(references)}"):
        exact_match(translations, references)
