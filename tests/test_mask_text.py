from __future__ import annotations

import pytest

from attent.attention.masks import Causal, Prefix, Window
from attent.errors import ArgumentError, UnknownNameError
from attent.mask_text import mask_of


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("causal", Causal()),
        ("autoregressive", Causal()),
        ("window:2", Window(2, 2)),
        ("local:1,0", Window(1, 0)),
        ("causal | prefix:3", Causal() | Prefix(3)),
        ("causal&window:4|prefix:1", Causal() & Window(4, 4) | Prefix(1)),
    ],
)
def test_a_mask_is_written_in_a_line(text: str, mask: object) -> None:
    assert repr(mask_of(text)) == repr(mask)


def test_masks_of_numbers_for_each_key() -> None:
    assert mask_of("padding:2").draw(3) == "■■·\n■■·\n■■·"
    assert mask_of("documents:0,0,1").draw(3) == "■■·\n■■·\n··■"


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("casual", UnknownNameError, "did you mean 'causal'"),
        ("window", ArgumentError, "^mask window needs numbers: window:2 or window:4,0$"),
        ("window:1,2,3", ArgumentError, "needs numbers: window:2 or window:4,0"),
        ("causal:1", ArgumentError, "^mask causal takes no numbers, got 'causal:1'$"),
        ("window:x", ArgumentError, "^mask window takes only numbers, such as window:2 or window:4,0, got 'window:x'$"),
        ("selected", ArgumentError, r"attent\.walk\(TEXT, mask=Selected\("),
        ("window:-1", ArgumentError, "a mask must look like causal, window:2"),
        ("", ArgumentError, "a mask must look like causal, window:2"),
    ],
)
def test_what_is_no_mask(text: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        mask_of(text)
