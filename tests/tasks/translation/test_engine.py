from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from attent.errors import ArgumentError
from attent.search.search import Hypothesis
from attent.tasks.translation.engine import Engine
from attent.text.tokenizer import CharTokenizer


class Reversing(Engine):
    """An engine that reverses each text, after its prefix."""

    def __init__(self) -> None:
        super().__init__(CharTokenizer("abcd"), CharTokenizer("abcd"))

    def search_encoded(
        self, sources: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]], *_: object, **__: object
    ) -> list[list[Hypothesis]]:
        return [
            [Hypothesis((*prefix, *reversed(tokens)), 0.0, 1.0)]
            for tokens, prefix in zip(sources, prefixes, strict=True)
        ]


def test_a_text_or_a_list_is_translated_after_its_prefix() -> None:
    engine = Reversing()
    assert engine.translate("ab") == "ba"
    assert engine.translate(["ab", "", "cd"], prefixes=["d", "", "a"]) == ["dba", "", "adc"]
    assert engine.search("ab", prefixes=engine.target_tokenizer.encode("c"))[0].text == "cba"
    # characters become variants that the engine knows
    assert engine.translate("\N{FULLWIDTH LATIN SMALL LETTER A}b") == "ba"


@pytest.mark.parametrize("prefixes", ["ab", ["a"], ["a", ["b"]]])
def test_prefixes_that_do_not_fit_are_refused(prefixes: object) -> None:
    with pytest.raises(ArgumentError, match="prefix"):
        Reversing().translate(["ab", "cd"], prefixes=prefixes)  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_batches_hold_texts_of_similar_length_and_leave_out_empty_ones() -> None:
    batches = [batch.tolist() for batch in Reversing().length_batches(np.array([3, 0, 1, 3, 2]), 2)]
    assert batches == [[2, 4], [0, 3]]
