"""Masks written as text, as in `attent walk --mask`: `causal`, `window:2`, `window:4,0 | prefix:3`."""

from __future__ import annotations

import re
from functools import reduce
from typing import TYPE_CHECKING

from attent import registry
from attent.errors import ArgumentError, refuse

if TYPE_CHECKING:
    from attent.attention.base import Mask

TERM = re.compile(r"\s*([\w.]+(?::[A-Za-z_]\w*)?)(?::(\d{1,9}(?:,\d{1,9})*))?\s*")
# Examples of the masks that take numbers.
EXAMPLES = {
    "window": "window:2 or window:4,0",
    "prefix": "prefix:3",
    "padding": "padding:5",
    "documents": "documents:0,0,0,1,1",
}


def mask_of(text: str) -> Mask:
    """Return the mask that a text describes: names with their numbers, joined by & (both) and | (either).

    & binds more tightly than |.

    Raises:
        ArgumentError: the text is not a mask, or the mask does not accept these numbers.
        UnknownNameError: there is no mask with such a name.
    """
    either = [[_build(term) for term in terms.split("&")] for terms in text.split("|")]
    return reduce(lambda left, right: left | right, (reduce(lambda left, right: left & right, both) for both in either))


def _split(term: str) -> tuple[str, list[int]]:
    match = TERM.fullmatch(term)
    if match is None:
        raise ArgumentError(f"a mask must look like causal, window:2 or causal|prefix:3, got {term!r}")
    return match[1], [int(number) for number in match[2].split(",")] if match[2] else []


def _build(term: str) -> Mask:
    import torch

    from attent.attention import choices
    from attent.attention.masks import MASKS, Documents, Padding, Prefix, Window

    name, numbers = _split(term)
    known_name, _, words = name.partition(":")
    if words and known_name in MASKS:
        raise ArgumentError(f"mask {known_name} takes only numbers, such as {EXAMPLES['window']}, got {name!r}")
    part = registry.find("mask", name, registry.with_aliases(dict(MASKS)))
    needs = choices.missing("mask", name)
    match numbers:
        case [] if needs is None:
            return part()
        case [sides] if part is Window:
            return Window(sides, sides)
        case [left, right] if part is Window:
            return Window(left, right)
        case [length] if part is Prefix:
            return Prefix(length)
        case [length] if part is Padding:
            return Padding(torch.tensor([length]))
        case [_, *_] if part is Documents:
            return Documents(torch.tensor([numbers]))
        case [_, *_] if needs is None:
            raise ArgumentError(f"mask {name} takes no numbers, got {term.strip()!r}")
    written = next((example for mask_name, example in EXAMPLES.items() if MASKS[mask_name] is part), None)
    refuse((written is not None, f"mask {name} needs numbers: {written}"))
    assert needs is not None
    raise ArgumentError(
        f"mask {name} needs values that cannot be given on the command line; "
        f"use {', '.join(needs[1])}, {', '.join(EXAMPLES.values())}; or in Python: attent.walk(TEXT, {needs[0]})"
    )
