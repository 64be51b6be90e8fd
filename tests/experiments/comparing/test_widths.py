from __future__ import annotations

import math

import pytest

from attent.experiments.comparing import settings
from attent.experiments.comparing.widths import KEYS, of_model, of_random


def test_without_the_scale_a_wide_query_looks_at_one_key() -> None:
    dots, scaled = ([of_random(score, width) for width in (16, 256)] for score in ("dot", "scaled_dot"))
    assert dots[1] < dots[0] < scaled[0]
    assert dots[1] < 0.5
    # scores of variance 1 whatever the width
    assert scaled[0] == pytest.approx(scaled[1], abs=0.05)
    assert scaled[1] < math.log(KEYS)


def test_the_entropy_of_a_model_is_that_of_its_sources(small: None) -> None:
    found = settings.on_dates(settings.TRANSFORMER, updates=1, minutes=None, seed=1)
    pairs = settings.corpus(found.dates).validation
    entropy = of_model(found.model, pairs)
    assert 0 < entropy < math.log(max(len(pair.source) for pair in pairs))
    assert of_model(found.model, pairs) == entropy
