import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from attent.attention import attend
from attent.attention.backends import bands
from attent.nonparametric.matching import Equal, TrigramCosine, numeric_values, read_entries

TEXTS = ["banana", "bananas", "Band", "", "Straße", "STRASSE", "ana"]


@pytest.mark.parametrize(
    ("value", "kind", "items"),
    [
        (3, "numbers", (3,)),
        ("ab", "strings", ("ab",)),
        (np.float32(0.5), "numbers", (0.5,)),
        (torch.tensor([[1.0, 2.0]]), "vectors", ((1.0, 2.0),)),
        ([(1, 2), [3, 4]], "vectors", ((1, 2), (3, 4))),
        ([True, ("a",)], "things", (True, ("a",))),
        ((letter for letter in "ab"), "strings", ("a", "b")),
        ([], None, ()),
    ],
)
def test_kinds(value: Any, kind: str | None, items: tuple[Any, ...]) -> None:
    result = read_entries("keys", value)
    assert (result.kind, result.items) == (kind, items)


def test_values_that_have_a_mean() -> None:
    assert numeric_values([1, np.float64(2)]).tolist() == [1.0, 2.0]
    assert numeric_values([[1, 2], torch.tensor([3, 4])]).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    for values in (["a"], [True], [[1, 2], [3]], [["a"]], [None], [2**53 + 1]):
        assert numeric_values(values) is None


def cosine(first: str, second: str) -> float:
    counts = [
        Counter(padded[at : at + 3] for at in range(len(padded) - 2))
        for text in (first, second)
        if (padded := f"  {text.casefold()} ")
    ]
    products = sum(counts[0][gram] * counts[1][gram] for gram in counts[0])
    return products / math.prod(math.sqrt(sum(number**2 for number in count.values())) for count in counts)


def test_cosines_of_trigrams() -> None:
    numbers = torch.arange(len(TEXTS), dtype=torch.float64)[None, None, :, None]
    scores = TrigramCosine(TEXTS, 0.5)(numbers[:, :, :4], numbers)
    expected = [[cosine(text, second) / 0.5 for second in TEXTS] for text in TEXTS[:4]]
    torch.testing.assert_close(scores[0, 0], torch.tensor(expected, dtype=torch.float64))
    # letter case, and what it makes of ß
    assert TrigramCosine(TEXTS, 1.0)(numbers[:, :, 4:5], numbers)[0, 0, 0, 5].item() == pytest.approx(1.0)


def test_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "TILE", 10)
    monkeypatch.setattr(bands, "WHOLE", 1)
    numbers, score = torch.arange(len(TEXTS), dtype=torch.float64)[:, None], TrigramCosine(TEXTS, 0.3)
    output = attend(numbers, numbers, numbers, score=score, implementation="tiled")
    expected = torch.softmax(score(numbers[None, None], numbers[None, None])[0, 0], -1) @ numbers
    torch.testing.assert_close(output, expected)


def test_a_query_sees_its_equals() -> None:
    mask = Equal.of(["b", "x", "a"], ["a", "b", "a"])
    assert mask.draw(3, 3) == "·■·\n···\n■·■"
    assert mask.has_match.tolist() == [True, False, True]
    assert Equal.of([1, float("nan")], [1.0, float("nan")]).draw(2, 2) == "■·\n··"
