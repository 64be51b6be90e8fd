"""Placeholders and addresses are no text."""

import pytest

from attent.documents.inline import Element, cut_placeholders


@pytest.mark.parametrize(
    "placeholder",
    [
        "{name}",
        "{{ name }}",
        "${user.name}",
        "{0:.2f}",
        "%s",
        "%(count)d",
        "%1$s",
        "%05.2f",
        "https://a.org/b?c=d",
        "a.b@c.org",
    ],
)
def test_a_placeholder_is_cut_out(placeholder: str) -> None:
    assert cut_placeholders(f"see {placeholder} now") == ["see ", Element(placeholder), " now"]


@pytest.mark.parametrize("text", ["100% sure", "a {b", "50 %", "me@home"])
def test_other_text_stays(text: str) -> None:
    assert cut_placeholders(text) == [text]
