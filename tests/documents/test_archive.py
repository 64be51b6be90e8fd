"""Archives that were made to take too much, or to lead elsewhere: refused in a line, before they are unpacked."""

from __future__ import annotations

import copy
import io
import zipfile

import pytest

from attent.documents import archive
from attent.documents.archive import Archive, parse_xml
from attent.errors import DataError


def packed(entries: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (packed({"word/document.xml": bytes(3 * 2**20)}), "more than 200 times their size"),
        (packed({f"{number}": b"" for number in range(2_001)}), "more than 2,000 entries"),
        (packed({"../a.xml": b""}), "points outside it"),
        (packed({"/etc/passwd": b""}), "points outside it"),
        (packed({"a": b"text" * 99}, zipfile.ZIP_BZIP2), "do not use"),
        (b"no archive", "no archive"),
        (b"", "no archive"),
    ],
)
def test_bombs_and_paths_are_refused(content: bytes, problem: str) -> None:
    with pytest.raises(DataError, match=problem) as refused:
        Archive(content)
    assert "\n" not in str(refused.value)


def test_the_whole_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    content = packed({"a.xml": b"<a/>" + b" " * 600, "b.xml": b"<b/>" + b" " * 600})
    monkeypatch.setattr(archive, "MAX_XML", 1_000)
    file = Archive(content)
    assert file.read_xml("a.xml").tag == "a"
    with pytest.raises(DataError, match="more than 1,000 bytes"):
        file.read_xml("b.xml")
    monkeypatch.setattr(archive, "MAX_UNPACKED", 1_000)
    with pytest.raises(DataError, match="unpacks to more than 1,000 bytes"):
        Archive(content)


def test_a_size_that_lies_unpacks_no_further() -> None:
    content = packed({"a.xml": b"<a>" + b"x" * 500_000})
    # the size in the list of entries, and in the entry
    lying = content.replace((500_003).to_bytes(4, "little"), (5).to_bytes(4, "little"))
    with pytest.raises(DataError, match="damaged"):
        Archive(lying).read("a.xml")


def test_two_entries_of_a_name_and_damage_are_refused() -> None:
    content = packed({"a.xml": b"<a/>", "b.xml": b"<b/>"})
    with pytest.raises(DataError, match="two entries with the same name"):
        Archive(content.replace(b"b.xml", b"a.xml"))
    damaged = bytearray(packed({"a.xml": b"<a>text</a>"}, zipfile.ZIP_STORED))
    damaged[damaged.index(b"text")] ^= 1
    with pytest.raises(DataError, match="damaged"):
        Archive(bytes(damaged)).read_xml("a.xml")
    with pytest.raises(DataError, match=r"has no c\.xml"):
        Archive(content).read_xml("c.xml")


@pytest.mark.parametrize(
    ("xml", "problem"),
    [
        (b'<!DOCTYPE a [<!ENTITY e "boom">]><a>&e;</a>', "document type"),
        (b'<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><a>&e;</a>', "document type"),
        ('<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE a><a/>'.encode("utf-16"), "document type"),
        (b'<!DOCTYPE a SYSTEM "http://127.0.0.1:9/x.dtd"><a/>', "document type"),
        (b"<a>&e;</a>", "cannot be read"),
        (b"<a>" * 1_000 + b"</a>" * 1_000, "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_entities_and_depth_are_refused(xml: bytes, problem: str) -> None:
    with pytest.raises(DataError, match=problem) as refused:
        parse_xml(xml)
    assert "boom" not in str(refused.value) and "root:" not in str(refused.value)


def test_a_billion_laughs_are_refused() -> None:
    entities = "".join(f'<!ENTITY e{number} "{f"&e{number - 1};" * 10}">' for number in range(1, 12))
    with pytest.raises(DataError):
        parse_xml(f'<!DOCTYPE a [<!ENTITY e0 "ha">{entities}]><a b="&e11;">&e11;</a>'.encode())


def test_tags_and_attributes_are_bounded_over_all_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b'<a b="1"><c/></a>'
    monkeypatch.setattr(archive, "MAX_TAGS", 7)
    opened = Archive(packed({"a": content, "b": content}, zipfile.ZIP_STORED))
    opened.read_xml("a")
    with pytest.raises(DataError, match="more than 7 tags and attributes"):
        opened.read_xml("b")


def test_no_encoding_hides_tags_from_being_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_TAGS", 20)
    for encoding in ("utf-7", "utf-32", "utf-16"):
        content = f'<?xml version="1.0" encoding="{encoding}"?><a>{"<b/>" * 30}</a>'.encode(encoding)
        if encoding == "utf-7":
            # as it may be written too
            content = content[:38] + content[38:].replace(b"<", b"+ADw-").replace(b">", b"+AD4-")
        with pytest.raises(DataError):
            Archive(packed({"a.xml": content})).read_xml("a.xml")


def test_declarations_of_namespaces_are_bounded() -> None:
    declarations = "".join(f' xmlns:n{number}="u"' for number in range(20_001))
    content = f"<a{declarations}/>".encode()
    with pytest.raises(DataError, match="declares namespaces more than 20,000 times"):
        Archive(packed({"a.xml": content}, zipfile.ZIP_STORED)).read_xml("a.xml")


def test_what_is_written_counts_as_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_XML", 1_000)
    file = Archive(packed({"a.xml": b"<a/>"}))
    file.add_xml(900, 1)
    with pytest.raises(DataError, match="more than 1,000 bytes"):
        file.add_xml(101, 1)


def test_entries_that_stay_are_copied_as_they_are_packed() -> None:
    entries = {"a.xml": b"<a/>", "b": b"text " * 9_999, "\u00e4/c": b"", "d.xml": b"<d/>"}
    content = packed(entries)
    file = Archive(content)
    root = file.read_xml("a.xml")
    root.text = "changed"
    before = zipfile.ZipFile(io.BytesIO(content)).infolist()
    with zipfile.ZipFile(io.BytesIO(file.write({"a.xml": root}))) as result:
        assert result.testzip() is None
        assert b"changed" in result.read("a.xml")
        assert {name: result.read(name) for name in result.namelist()} | {"a.xml": b""} == entries | {"a.xml": b""}
        sizes = [entry.compress_size for entry in result.infolist()]
        assert sizes[1:] == [entry.compress_size for entry in before[1:]]


def test_entries_that_share_their_bytes_are_refused() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("a", bytes(10_000))
        for number in range(50):
            entry = copy.copy(file.infolist()[0])
            entry.filename = entry.orig_filename = f"a{number}"
            file.filelist.append(entry)
    with pytest.raises(DataError, match="overlap"):
        Archive(stream.getvalue())


def test_an_entry_that_ends_too_early_is_refused() -> None:
    content = bytearray(packed({"a.xml": b"<a/>", "b": b"text"}, zipfile.ZIP_STORED))
    file = Archive(bytes(content))
    # the list of entries says that its second begins at the file's end
    position = content.rindex(b"PK\x01\x02") + 42
    content[position : position + 4] = (len(content) - 10).to_bytes(4, "little")
    file = Archive(bytes(content))
    with pytest.raises(DataError, match="damaged"):
        file.write({"a.xml": file.read_xml("a.xml")})
