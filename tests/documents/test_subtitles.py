"""Subtitles and plain text: a file of its own translation is the same file."""

import pytest

from attent.documents import parse_subtitles, parse_text
from attent.documents.inline import AlignedText
from attent.text.units import units

CUES = (
    "1\n00:00:01,000 --> 00:00:02,000\n{\\an8}<i>one</i> two\nthree\n\n",
    "1\r\n0:0:1.5 --> 0:0:2.5\r\n- one\r\n- two & <three>\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,000\r\n\r\n",
    # no blank line between them, and none at the end
    "1\n00:00:01,000 --> 00:00:02,000\none\n2\n00:00:02,000 --> 00:00:03,000\n<b>two",
    "no cue at all\n\n1\n",
    "",
)


@pytest.mark.parametrize("text", CUES)
def test_its_own_translation_is_the_same_file(text: str) -> None:
    for parse in (parse_subtitles, parse_text):
        marked = parse(text)
        assert (
            marked.render([AlignedText(line, [(span, span) for span in units(line)]) for line in marked.texts]) == text
        )


def test_cues_are_lines_and_nothing_else_is() -> None:
    assert [text for cues in CUES for text in parse_subtitles(cues).texts] == [
        "one two three",
        "- one",
        "- two & <three>",
        "one",
        "two",
    ]
