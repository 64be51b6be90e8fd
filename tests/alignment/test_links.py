import pytest
import torch

from attent.alignment.aligner import extract_links

WEIGHTS = torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4], [0.0, 0.0, 0.0]])


def test_what_is_looked_at_most() -> None:
    # of two alike the first, and of nothing none
    assert extract_links(WEIGHTS[None])[0] == [(1, 0), (0, 1)]


@pytest.mark.parametrize(
    ("threshold", "actual"),
    [(0.25, [(1, 0), (2, 0), (0, 1), (2, 1)]), (0.0, [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]), (0.5, [])],
)
def test_all_above_a_threshold(threshold: float, actual: list[tuple[int, int]]) -> None:
    assert extract_links(WEIGHTS[None], threshold)[0] == actual


def test_nothing_to_look_at() -> None:
    assert (
        extract_links(torch.zeros(1, 2, 0))[0]
        == extract_links(torch.zeros(1, 0, 3))[0]
        == extract_links(torch.zeros(1, 2, 0), 0.1)[0]
        == []
    )
