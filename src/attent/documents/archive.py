"""Zip archives of XML, as written by word processors.

They are read and written in memory, within limits that are checked before unpacking.
"""

import codecs
import io
import zipfile
import zlib

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from attent.errors import DataError, refuse, reraise

MAX_ENTRIES = 2_000
# Maximum unpacked bytes of all entries, and of those read as XML, including formats that are written more than once.
MAX_UNPACKED, MAX_XML = 128 * 2**20, 16 * 2**20
# Maximum tags and attributes of the XML; each takes up to 450 bytes of memory.
MAX_TAGS = 250_000
# Maximum namespace declarations in an entry: those of a single tag take quadratic time.
MAX_DECLARATIONS = 20_000
# Maximum ratio of an entry's size to its packed size, for entries of at least this size: text and tables shrink 10- to
# 30-fold.
MAX_RATIO, RATIO_FROM = 200, 2**20
# zlib's level for changed entries: higher levels take ten times as long for adversarial text.
COMPRESSION = 3
CENTRAL_HEADER = b"PK\x01\x02"
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Errors that a damaged or (RuntimeError) encrypted entry raises.
DAMAGES = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError)


def parse_xml(content: bytes) -> etree._Element:
    """Parse XML without a document type: no entities are expanded, and nothing is fetched.

    Raises:
        DataError: the XML is not well-formed, too deep, or has a document type.
    """
    # another encoding could hide tags from the count
    encoding = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"
    parser = etree.XMLParser(
        encoding=encoding, resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False
    )
    try:
        root = etree.fromstring(content, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise DataError(f"its XML cannot be read: {str(error).splitlines()[0]}") from error
    if root.getroottree().docinfo.doctype:
        raise DataError("its XML has a document type, which no word processor writes")
    return root


class Archive:
    """A zip archive in memory.

    Args:
        content: the bytes of the file.

    Raises:
        DataError: the file is not an archive, or exceeds a limit.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        # before any name is read: the list of entries may be as long as the file
        if content.count(CENTRAL_HEADER) > MAX_ENTRIES:
            raise DataError(f"the archive has more than {MAX_ENTRIES:,} entries")
        with reraise(DataError, "the file is no archive", zipfile.BadZipFile, ValueError, NotImplementedError, OSError):
            self._zip = zipfile.ZipFile(io.BytesIO(content))
        self._entries = {entry.filename: entry for entry in self._zip.infolist()}
        self._xml_size = self._tags = 0
        self._check()

    @property
    def names(self) -> list[str]:
        """The names of the entries."""
        return [*self._entries]

    def read(self, name: str) -> bytes:
        """Return the unpacked bytes of an entry.

        Raises:
            DataError: the entry is damaged.
        """
        with reraise(DataError, "the archive is damaged", *DAMAGES):
            return self._zip.read(self._entries[name])

    def read_xml(self, name: str) -> etree._Element:
        """Parse an entry as XML, and return its root.

        Raises:
            DataError: there is no such entry, or it is too large, has too many tags, or is not XML.
        """
        if name not in self._entries:
            raise DataError(f"the archive has no {name}")
        self.add_xml(self._entries[name].file_size, 0)
        content = self.read(name)
        if content.count(b"xmlns") > MAX_DECLARATIONS:
            raise DataError(f"its XML declares namespaces more than {MAX_DECLARATIONS:,} times")
        self.add_xml(0, content.count(b"<") + content.count(b"="))
        return parse_xml(content)

    def add_xml(self, size: int, tags: int) -> None:
        """Add to the amount of XML that has been read or written.

        Args:
            size: the number of bytes.
            tags: the number of tags and attributes.

        Raises:
            DataError: the total exceeds a limit.
        """
        self._xml_size += size
        self._tags += tags
        refuse(
            (self._xml_size > MAX_XML, f"its XML has more than {MAX_XML:,} bytes"),
            (self._tags > MAX_TAGS, f"its XML has more than {MAX_TAGS:,} tags and attributes"),
            kind=DataError,
        )

    def write(self, changed: dict[str, etree._Element]) -> bytes:
        """Return the archive with the XML of some entries replaced; the others and the order are unchanged.

        Raises:
            DataError: an entry is damaged.
        """
        result = io.BytesIO()
        with zipfile.ZipFile(result, "w") as file:
            for name, entry in self._entries.items():
                root = changed.get(name)
                copy = zipfile.ZipInfo(name, entry.date_time)
                copy.compress_type, copy.external_attr = entry.compress_type, entry.external_attr
                if root is None:
                    self._copy(entry, copy, file, result)
                else:
                    xml = etree.tostring(root.getroottree(), xml_declaration=True, encoding="UTF-8", standalone=True)
                    file.writestr(copy, xml, compresslevel=COMPRESSION)
        return result.getvalue()

    def _copy(self, entry: zipfile.ZipInfo, copy: zipfile.ZipInfo, file: zipfile.ZipFile, stream: io.BytesIO) -> None:
        """Copy an entry without unpacking it, since unpacking highly compressible content takes seconds.

        Raises:
            DataError: the entry is damaged.
        """
        view = memoryview(self._content)
        names = view[entry.header_offset + 26 : entry.header_offset + 30]
        begin = entry.header_offset + 30 + int.from_bytes(names[:2], "little") + int.from_bytes(names[2:], "little")
        packed = view[begin : begin + entry.compress_size]
        if len(names) < 4 or len(packed) < entry.compress_size:
            raise DataError("the archive is damaged: an entry ends too early")
        copy.CRC, copy.compress_size, copy.file_size = entry.CRC, entry.compress_size, entry.file_size
        stream.seek(file.start_dir)
        copy.header_offset = stream.tell()
        stream.write(copy.FileHeader())
        stream.write(packed)
        file.filelist.append(copy)
        file.NameToInfo[copy.filename] = copy
        file.start_dir = stream.tell()

    def _check(self) -> None:
        entries = self._zip.infolist()
        refuse(
            (len(entries) != len(self._entries), "the archive has two entries with the same name"),
            (
                sum(entry.file_size for entry in entries) > MAX_UNPACKED,
                f"the archive unpacks to more than {MAX_UNPACKED:,} bytes",
            ),
            # entries that share bytes would each be written with a copy of them
            (sum(entry.compress_size for entry in entries) > len(self._content), "the archive's entries overlap"),
            kind=DataError,
        )
        for entry in entries:
            refuse(
                (
                    entry.file_size > max(MAX_RATIO * entry.compress_size, RATIO_FROM),
                    f"the archive's entries unpack to more than {MAX_RATIO} times their size",
                ),
                (
                    entry.compress_type not in METHODS or entry.flag_bits & 1,
                    "the archive is encrypted, or compressed by a method that word processors do not use",
                ),
                (
                    entry.filename.startswith("/") or "\\" in entry.filename or ".." in entry.filename.split("/"),
                    "the archive has an entry name that points outside it",
                ),
                kind=DataError,
            )
