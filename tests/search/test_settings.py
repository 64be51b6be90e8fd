import numpy as np
import pytest
from pydantic import ValidationError

from attent.search.settings import SearchSettings


@pytest.mark.parametrize(
    ("settings", "limits"),
    [
        ({}, [34, 42]),
        ({"maximum_length": 9}, [9, 9]),
        ({"maximum_factor": 1.5}, [1, 7]),
        ({"maximum_factor": 1.5, "maximum_length": 6}, [1, 6]),
        ({"maximum_factor": 1e30}, [2**53, 2**53]),
    ],
)
def test_a_translation_ends_by_the_length_of_its_own_source(settings: dict[str, float], limits: list[int]) -> None:
    assert SearchSettings(**settings).limits(np.array([1, 5])).tolist() == limits


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"temperature": 0.5}, "set sample = true"),
        ({"minimum_length": 5, "maximum_length": 4}, "at most maximum_length = 4, got 5"),
        ({"length_penalty": -1}, "greater than or equal to 0"),
        ({"beams": 2}, "Extra inputs"),
        ({"maximum_factor": float("inf")}, "finite"),
        ({"sample": True, "n_best": 10**30}, "less than or equal to 10000"),
        ({"minimum_length": 10**30}, "less than or equal to"),
        ({"maximum_length": 10**30}, "less than or equal to"),
    ],
)
def test_what_does_not_go_together(settings: dict[str, float], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        SearchSettings(**settings)
