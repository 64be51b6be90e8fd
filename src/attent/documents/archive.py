"""Zip archives of XML, as word processors write them: read and written in memory, within limits that are checked before unpacking."""

from __future__ import annotations

import io
import zipfile
import zlib

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from attent.errors import DataError

MAX_ENTRIES = 2_000
# Bytes that all entries unpack to, and those of them that are read as XML.
MAX_UNPACKED, MAX_XML = 128 * 2**20, 32 * 2**20
# Tags and attributes of these, each of which takes up to 450 bytes of memory.
MAX_TAGS = 1_000_000
# An entry's size over its packed size, from this size on: text and tables pack to a tenth or a thirtieth.
MAX_RATIO, RATIO_FROM = 200, 2**20
CENTRAL_HEADER = b"PK\x01\x02"
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def parse_xml(content: bytes) -> etree._Element:
    """Parse XML without a document type: no entity is expanded, and nothing is fetched.

    Raises:
        DataError: it is not well-formed, too deep, or has a document type.
    """
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(content, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise DataError(f"its XML cannot be read: {str(error).splitlines()[0]}") from error
    if root.getroottree().docinfo.doctype:
        raise DataError("its XML has a document type, which no word processor writes")
    return root


class Archive:
    """An archive in memory.

    Args:
        content: of the file.

    Raises:
        DataError: it is none, or would take too much.
    """

    def __init__(self, content: bytes) -> None:
        # before an entry's name is read: a list of them may be as long as the file
        if content.count(CENTRAL_HEADER) > MAX_ENTRIES:
            raise DataError(f"the archive has more than {MAX_ENTRIES:,} entries")
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
            raise DataError(f"the file is no archive: {error}") from error
        self._entries = {entry.filename: entry for entry in self._zip.infolist()}
        self._xml_size = self._tags = 0
        self._check()

    @property
    def names(self) -> list[str]:
        """The names of its entries."""
        return [*self._entries]

    def read(self, name: str) -> bytes:
        """Return an entry's content.

        Raises:
            DataError: it is damaged.
        """
        try:
            return self._zip.read(self._entries[name])
        # RuntimeError: encrypted
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError) as error:
            raise DataError(f"the archive is damaged: {error}") from error

    def read_xml(self, name: str) -> etree._Element:
        """Return an entry's XML.

        Raises:
            DataError: there is no such entry, it is too large, has too many tags, or is no XML.
        """
        if name not in self._entries:
            raise DataError(f"the archive has no {name}")
        self._xml_size += self._entries[name].file_size
        if self._xml_size > MAX_XML:
            raise DataError(f"its XML has more than {MAX_XML:,} bytes")
        content = self.read(name)
        self._tags += content.count(b"<") + content.count(b"=")
        if self._tags > MAX_TAGS:
            raise DataError(f"its XML has more than {MAX_TAGS:,} tags and attributes")
        return parse_xml(content)

    def write(self, changed: dict[str, etree._Element]) -> bytes:
        """Return the archive with the XML of some entries changed; all others, and their order, stay.

        Raises:
            DataError: an entry is damaged.
        """
        result = io.BytesIO()
        with zipfile.ZipFile(result, "w") as file:
            for name, entry in self._entries.items():
                root = changed.get(name)
                copy = zipfile.ZipInfo(name, entry.date_time)
                copy.compress_type, copy.external_attr = entry.compress_type, entry.external_attr
                xml = None if root is None else etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8", standalone=True)
                file.writestr(copy, self.read(name) if xml is None else xml)
        return result.getvalue()

    def _check(self) -> None:
        entries = self._zip.infolist()
        if len(entries) != len(self._entries):
            raise DataError("the archive has two entries of one name")
        if sum(entry.file_size for entry in entries) > MAX_UNPACKED:
            raise DataError(f"the archive unpacks to more than {MAX_UNPACKED:,} bytes")
        for entry in entries:
            if entry.file_size > max(MAX_RATIO * entry.compress_size, RATIO_FROM):
                raise DataError(f"the archive's entries unpack to more than {MAX_RATIO} times their size")
            if entry.compress_type not in METHODS or entry.flag_bits & 1:
                raise DataError("the archive is encrypted, or packed by a method that word processors do not use")
            if entry.filename.startswith("/") or "\\" in entry.filename or ".." in entry.filename.split("/"):
                raise DataError("the archive has a name that leads out of it")
