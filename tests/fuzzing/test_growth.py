from __future__ import annotations

import random

import pytest
from fuzzing import documents
from fuzzing.growth import Cost, growth

TEXTS = {
    ".docx": (
        documents.word("<w:p><w:r><w:t>a </w:t><w:tab/></w:r><w:r><w:t>b</w:t><w:br/></w:r></w:p>"),
        "\n\na \tb\n",
    ),
    ".odt": (
        documents.open_document('<text:p>a  b<text:s text:c="2"/><text:span>c\n</text:span><text:tab/></text:p>'),
        "a b  c \t",
    ),
    ".html": (b"<p>a&nbsp;<b>b</b>&lt;</p>", "a\u00a0b<"),
    ".md": (b"**a** `b`\n", "a b\n"),
    ".txt": ("a\r\n".encode("utf-16"), "\ufeffa\r\n".removeprefix("\ufeff")),
}


@pytest.mark.parametrize("ending", TEXTS)
def test_the_text_of_a_document_is_read(ending: str) -> None:
    content, text = TEXTS[ending]
    assert documents.text_of(ending, content) == text


def test_documents_are_a_function_of_the_seed_and_of_every_format() -> None:
    once, repeated = ([documents.well_formed(random.Random(seed)) for seed in range(60)] for _ in range(2))
    assert once == repeated
    assert {ending for ending, _ in once} == {".txt", ".html", ".md", ".srt", ".docx", ".odt"}
    assert all(documents.text_of(ending, content).strip() for ending, content in once)
    changed = [documents.spoilt(random.Random(seed)) for seed in range(60)]
    assert sum(documents.spoilt(random.Random(seed)) == after for seed, after in enumerate(changed)) == 60
    assert len({content for _, content in changed}) > 50


def test_each_kind_doubles() -> None:
    kinds = documents.growing()
    assert len(kinds) > 200
    for name, (ending, _, make) in kinds.items():
        contents = [make(n) for n in (8, 64)]
        if ending in documents.ARCHIVES:
            small, large = (sum(map(len, documents.unpacked(content).values())) for content in contents)
        else:
            small, large = 7 * len(contents[0]), len(contents[1])
        assert large > small, name


@pytest.mark.parametrize(
    ("half", "whole", "count"),
    [
        ((1.0, 100.0), (2.0, 200.0), 0),
        ((1.0, 100.0), (2.6, 200.0), 1),
        ((1.0, 100.0), (4.0, 400.0), 2),
        # noise
        ((0.01, 1.0), (0.2, 20.0), 0),
        # from nothing that is noticed to much
        ((0.01, 1.0), (2.0, 20.0), 1),
    ],
)
def test_growth_beyond_twice_and_a_half_is_a_fault(
    half: tuple[float, float], whole: tuple[float, float], count: int
) -> None:
    assert len(growth(Cost("", *half), Cost("", *whole))) == count


@pytest.mark.parametrize(
    ("megabytes", "count"),
    [
        # what is beyond memory that was free grows in proportion, or faster
        ((0.0, 10.0, 26.0), 0),
        ((0.0, 100.0, 300.0), 0),
        ((0.0, 60.0, 260.0), 1),
        # in proportion to the square
        ((10.0, 40.0, 160.0), 1),
        # a step that is larger than what came before it
        ((40.0, 50.0, 150.0), 1),
    ],
)
def test_memory_that_was_free_before_is_no_growth(megabytes: tuple[float, float, float], count: int) -> None:
    quarter, half, whole = (Cost("", 0.1, size) for size in megabytes)
    assert len(growth(half, whole, quarter)) == count


MEASURED = """
from attent.errors import DataError
from fuzzing.growth import measured

def refuse():
    raise DataError({message})

def action():
    {action}

cost = measured(action)
print(cost.outcome, cost.faults, 0 <= cost.seconds < 5, sep="|")
"""


@pytest.mark.parametrize(
    ("action", "message", "expected"),
    [
        ("return 'rendered'", "''", "rendered|[]|True"),
        ("refuse()", "'no text'", "refused: no text|[]|True"),
        ("refuse()", "'a' * 5000", "fault: a long error"),
        ("raise KeyError('a')", "''", "fault: KeyError: 'a'|[\"fault: KeyError: 'a'\"]|True"),
        ("import os; os.abort()", "''", "fault: ended by SIGABRT"),
        ("data = b'a' * (500 * 2**20); return 'rendered'", "''", "rendered|['took 4"),
        ("import sys; sys.modules['torch'] = sys; return 'rendered'", "''", "fault: torch was imported"),
    ],
)
def test_a_planted_fault_of_a_process_is_noticed(fuzzing, action: str, message: str, expected: str) -> None:
    assert fuzzing(MEASURED.replace("{action}", action).replace("{message}", message)).startswith(expected)


# A reader that looks through everything before for each sign, and a renderer that loses a space.
PLANTED = """
from fuzzing import growth

def slow(content, ending):
    text = content.decode()
    for end in range(0, len(text), 50):
        sum(map(ord, text[:end]))
    return content

growth.render, growth.FLOORS, growth.TIMES = slow, (0.05, 24.0), 200
print(growth.grown(".txt of 'a'")[0])
growth.render = lambda content, ending: content.replace(b" ", b"", 1)
faults = [fault for number in range(8) for fault in growth.document_faults(1, number)[2]]
print(any("other white space" in fault for fault in faults))
growth.render = lambda content, ending: content
kinds = [growth.document_faults(1, number)[2] for number in range(8)]
print(kinds)
"""


def test_a_planted_growth_and_a_planted_change_are_noticed(fuzzing) -> None:
    grown, changed, unchanged = fuzzing(PLANTED).splitlines()
    assert "grew" in grown or "took" in grown
    assert changed == "True"
    assert unchanged == str([[]] * 8)
