"""Translated documents: bounded in all."""

from __future__ import annotations

from attent.server.translated_files import TranslatedFiles, safe_name


def test_the_oldest_go_where_there_are_too_many_bytes() -> None:
    files = TranslatedFiles(60, max_bytes=25)
    keys = [files.save(bytes(10), f"{number}.txt") for number in range(3)]
    assert [files.find(key) is not None for key in keys] == [False, True, True]
    # one that is too large by itself is the only one
    keys = [*keys, files.save(bytes(30), "large.txt")]
    assert [files.find(key) is not None for key in keys] == [False, False, False, True]


def test_names_are_those_of_files() -> None:
    assert safe_name('a"\r\nSet-Cookie: x=y;\u2028.txt') == "a_Set-Cookie_x_y_.txt"
    assert safe_name("C:\\x\\a b.txt") == "a_b.txt"
    assert safe_name("a" * 300 + ".txt") == "a" * 100 + ".txt"
    assert safe_name("..txt") == "document.txt"
    assert safe_name("/") == safe_name("") == "document"
