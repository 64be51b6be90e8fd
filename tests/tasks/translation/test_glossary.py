from __future__ import annotations

import time
from pathlib import Path

import pytest

from attent.errors import ArgumentError, DataError
from attent.tasks.translation.glossary import MAX_ENTRIES, Glossary, Term, keeps_case, missing, read_glossary
from attent.text.tokenizer import CharTokenizer


def terms(text: str, *entries: tuple[str, str], case: bool = False) -> list[str]:
    return [f"{text[term.begin : term.end]}={term.target}" for term in Glossary(entries).find(text, keeps_case=case)]


def test_terms_stand_between_words_the_longest_first() -> None:
    entries = (("dog", "1"), ("dog house", "2"), ("big dog", "3"))
    assert terms("A dog, a dog house; dogs hotdog", *entries) == ["dog=1", "dog house=2"]
    # the earlier term takes its words, and none lies within another
    assert terms("a big dog house", *entries) == ["big dog=3"]
    assert terms("dog  house dog-house", *entries) == ["dog  house=2", "dog=1"]
    assert Glossary((("c++", "x"),)).find("in C++.") == [Term(3, 6, "x")]
    # a script without spaces has no words to stand between
    assert terms("我有狗和猫", ("狗", "dog"), ("猫", "cat")) == ["狗=dog", "猫=cat"]


def test_marks_are_of_the_word_before_them() -> None:
    # of an accent, a vowel sign, a tone, a joiner: no word ends before it
    texts = {
        "cafe\u0301 au lait": "cafe",
        "हिन्दी में": "ह",
        "में": "म",
        "\u0e17\u0e35\u0e48": "\u0e17",
        "می\u200cروم": "می",
    }
    for text, part in texts.items():
        assert terms(text, (part, "x")) == [] and missing(text, [part]) == [part]
    assert terms("वह हिन्दी है", ("हिन्दी", "Hindi")) == ["हिन्दी=Hindi"]
    assert not missing("वह हिन्दी है", ["हिन्दी"]) and missing("हिन्दी", ["दी"]) == ["दी"]
    # targets are words too
    assert not missing("ein Hund .", ["Hund"]) and missing("ein Hundehaus", ["Hund"])
    assert missing("Hund Haus Hund", ["Hund", "Hund", "Hund Haus"]) == ["Hund"]
    assert not missing("die猫", ["猫"])


def test_accents_are_alike_composed_or_not() -> None:
    composed, decomposed = "Café", "Cafe\u0301"
    for source, text in ((composed, decomposed), (decomposed, composed)):
        for case in (False, True):
            assert terms(f"the {text} ; cafes", (source, "x"), case=case) == [f"{text}=x"]
        assert not missing(f"im {text}.", [source])
    with pytest.raises(ArgumentError, match="is term 1 already"):
        Glossary(((composed, "x"), (decomposed, "y")))


def test_capitals_count_where_the_run_knows_them() -> None:
    entries = (("us", "uns"), ("dog", "Hund"))
    assert terms("US dogs and Dog for us", *entries) == ["US=uns", "Dog=Hund", "us=uns"]
    assert terms("US Dog for us", *entries, case=True) == ["us=uns"]
    # but for the first letter of a text
    assert terms("Dog for us", *entries, case=True) == ["Dog=Hund", "us=uns"]
    assert not keeps_case(CharTokenizer("abc "))
    assert keeps_case(CharTokenizer("abcA"))


def test_terms_of_another_glossary_go_first() -> None:
    general, own = Glossary((("Dog", "Hund"), ("dog house", "Hütte"), ("cat", "Katze"))), Glossary((("dog", "Köter"),))
    merged = general.updated(own)
    assert [term.target for term in merged.find("a dog runs")] == ["Köter"]
    assert [term.target for term in merged.find("dog house, cat")] == ["Hütte", "Katze"]
    assert [term.target for term in merged.find("a Dog, a dog", keeps_case=True)] == ["Hund", "Köter"]
    repeated = merged.updated(Glossary((("cat", "Kater"),)))
    assert [term.target for term in repeated.find("dog cat")] == ["Köter", "Kater"]
    assert merged != repeated and hash(merged) == hash(own)


def test_a_large_glossary_is_not_read_again_for_each_other() -> None:
    large = Glossary(tuple((f"dog{number}", "x") for number in range(MAX_ENTRIES)))
    large.find("dog")
    begin = time.process_time()
    for number in range(100):
        merged = large.updated(Glossary((("cat", str(number)),)))
        assert [term.target for term in merged.find("dog7 cat")] == ["x", str(number)]
    # it took a quarter of a second each
    assert time.process_time() - begin < 2


def test_a_bad_line_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, head = tmp_path / "terms.tsv", "first\tone\r\n\n# a note\n"
    for line, says in (
        ("a\tb\tc", "must be source, tab, target, got 2 tabs"),
        ("ab", "must be source, tab, target, got 0 tabs"),
        ("a\t", "its target must be a text of one line, got ''"),
        ("\tb", "its source must be a text of one line, got ''"),
        (f"{'a' * 201}\tb", "its source has 201 characters, more than 200"),
        ("first\tagain", "'first' is in line 1 already"),
    ):
        file.write_text(f"{head}{line}\n", encoding="utf-8", newline="")
        with pytest.raises(DataError) as caught:
            read_glossary(file)
        assert str(caught.value) == f"{file}, line 4: {says}"
    file.write_text(f"{head}second\ttwo\n", encoding="utf-8", newline="")
    assert read_glossary(file).entries == (("first", "one"), ("second", "two"))
    for name in ("nowhere", "."):
        with pytest.raises(DataError):
            read_glossary(tmp_path / name)
    with pytest.raises(ArgumentError, match="term 1: its target"):
        Glossary((("a", "b\nc"),))
    with pytest.raises(ArgumentError, match="term 2: 'a' is term 1 already"):
        Glossary((("a", "b"), ("a", "c")))
    monkeypatch.setattr("attent.tasks.translation.glossary.MAX_ENTRIES", 1)
    with pytest.raises(ArgumentError, match="a glossary has at most 1 terms, got 2"):
        Glossary((("a", "b"), ("c", "d")))
