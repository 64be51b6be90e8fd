from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from attent.attention import attend
from attent.attention.backends import row_tiles
from attent.database.strings import Alike, TrigramCosine
from attent.errors import ArgumentError

TEXTS = ["banana", "bananas", "Band", "", "Straße", "STRASSE", "ana"]


def cosine(one: str, other: str) -> float:
    counts = [Counter(padded[at : at + 3] for at in range(len(padded) - 2)) for text in (one, other) if (padded := f"  {text.casefold()} ")]
    products = sum(counts[0][gram] * counts[1][gram] for gram in counts[0])
    return products / math.prod(math.sqrt(sum(number**2 for number in count.values())) for count in counts)


def test_cosines_of_trigrams() -> None:
    numbers = torch.arange(len(TEXTS), dtype=torch.float64)[None, None, :, None]
    scores = TrigramCosine(TEXTS, 0.5)(numbers[:, :, :4], numbers)
    expected = torch.tensor([[[[cosine(one, other) / 0.5 for other in TEXTS] for one in TEXTS[:4]]]], dtype=torch.float64)
    torch.testing.assert_close(scores, expected)
    # letter case, and what it makes of ß
    assert TrigramCosine(TEXTS, 1.0)(numbers[:, :, 4:5], numbers)[0, 0, 0, 5].item() == pytest.approx(1.0)


def test_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tiles, "TILE", 10)
    monkeypatch.setattr(row_tiles, "WHOLE", 1)
    numbers = torch.arange(len(TEXTS), dtype=torch.float64)[:, None]
    arguments = {"score": TrigramCosine(TEXTS, 0.3), "implementation": "tiled"}
    found = attend(numbers, numbers, numbers, **arguments)
    expected = torch.softmax(TrigramCosine(TEXTS, 0.3)(numbers[None, None], numbers[None, None])[0, 0], -1) @ numbers
    torch.testing.assert_close(found, expected)


def test_no_strings() -> None:
    assert TrigramCosine([], 1.0)(torch.zeros(1, 1, 0, 1), torch.zeros(1, 1, 0, 1)).shape == (1, 1, 0, 0)


def test_what_a_function_says() -> None:
    numbers = torch.arange(3.0)[None, None, :, None]
    score = Alike(["a", "bb", "ccc"], lambda query, key: len(query) - len(key), 2.0)
    assert score(numbers, numbers)[0, 0].tolist() == [[0.0, -0.5, -1.0], [0.5, 0.0, -0.5], [1.0, 0.5, 0.0]]
    with pytest.raises(ArgumentError, match=r"^a score of strings must be a finite number, got None for 'a' and 'a'$"):
        Alike(["a"], lambda query, key: None, 1.0)(numbers[:, :, :1], numbers[:, :, :1])
