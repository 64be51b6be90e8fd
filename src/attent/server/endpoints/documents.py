"""LibreTranslate's endpoints for documents: a file in, the address of its translation out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from attent.documents import FORMATS
from attent.server.body import read_parameters, text_of
from attent.server.document_translator import DocumentTranslator
from attent.server.errors import RequestError, invalid
from attent.server.service import TranslationService
from attent.server.translated_files import TranslatedFiles, storage_error

# A name or an address, and a port: nothing that could end a link or begin another one.
HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?")
PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]{1,100}){0,8}")
SCHEMES = ("http", "https")
DOWNLOAD = "/download_file"
# Nothing in a document may run as if it were the server's own.
HEADERS = {"Content-Security-Policy": "sandbox; default-src 'none'", "Cache-Control": "private, no-store"}
# Admits a request by its parameters and texts, or counts further texts of one that was admitted.
Admit = Callable[..., None]


def public_address(request: Request, trusted_proxies: Collection[str]) -> str:
    """Return scheme, host and root path, such as http://localhost:5000, without a slash at the end.

    What the Host header says is taken where it is a host; X-Forwarded-Proto, -Host and -Prefix are believed of a
    trusted proxy alone.
    """
    scheme, hosts, prefix = request.url.scheme, [request.headers.get("host", "")], ""
    if request.client is not None and request.client.host in trusted_proxies:
        forwarded = request.headers.get("x-forwarded-proto", "").lower()
        scheme = forwarded if forwarded in SCHEMES else scheme
        hosts.insert(0, request.headers.get("x-forwarded-host", ""))
        forwarded = request.headers.get("x-forwarded-prefix", "").rstrip("/")
        # a path that goes up leads elsewhere
        prefix = forwarded if PREFIX.fullmatch(forwarded) and ".." not in forwarded else ""
    address, port = request.scope.get("server") or ("localhost", None)
    own = f"[{address}]" if ":" in address else address
    host = next((host for host in hosts if HOST.fullmatch(host)), own if port is None else f"{own}:{port}")
    return f"{scheme}://{host}{prefix}"


class DocumentEndpoints:
    """Endpoints that translate documents.

    Args:
        service: translates.
        files: holds translated documents.
        admit: counts the texts of a request, or refuses it.
    """

    def __init__(self, service: TranslationService, files: TranslatedFiles, admit: Admit) -> None:
        self._service, self._files, self._admit = service, files, admit
        self._translator = DocumentTranslator(service)

    async def read(self, request: Request) -> None:
        """Read a request with a document, which goes to the disk if it is large, so that memory does not fill."""
        if self._service.settings.disable_files_translation:
            raise RequestError(403, "Files translation are disabled on this server.")
        self._translator.check_room()
        try:
            await read_parameters(request, self._service.settings)
        except OSError as error:
            raise storage_error(error) from error

    async def translate_file(self, request: Request) -> dict[str, Any]:
        """Answer POST /translate_file."""
        settings = self._service.settings
        values = await read_parameters(request, settings)
        upload = _upload_of(values)
        try:
            source, target = text_of(values, "source"), text_of(values, "target")
            name, size = upload.filename or "", upload.size or 0
            if not name or not size:
                raise invalid("empty file")
            ending = PurePosixPath(name).suffix.lower()
            if ending not in FORMATS:
                raise invalid("file format not supported")
            if size > settings.max_file:
                raise RequestError(413, f"Invalid request: a document may have at most {settings.max_file:,} bytes")
            self._service.check_languages(source, target)
            self._admit(request, values, 1)

            def charge(characters: int) -> None:
                # as many as there are in texts of the largest size; the first one is counted
                if settings.char_limit > 0 and (texts := -(-characters // settings.char_limit) - 1) > 0:
                    self._admit(request, values, texts, is_admitted=True)

            # on the disk where it is large, until it is its turn
            translation = await self._translator.translate(upload.file, ending, source, target, charge)
        finally:
            await upload.close()
        key = await self._service.documents.run(self._files.save, translation, name)
        return {"translatedFileUrl": f"{public_address(request, settings.trusted_proxy)}{DOWNLOAD}/{quote(key)}"}

    async def download(self, request: Request) -> Response:
        """Answer GET /download_file/<name>."""
        file = self._files.find(request.path_params["name"])
        # a cleaner of /tmp may have been here
        with suppress(FileNotFoundError):
            if file is not None:
                status = file.path.stat()
                return FileResponse(
                    file.path,
                    headers=HEADERS,
                    media_type="application/octet-stream",
                    filename=file.name,
                    stat_result=status,
                )
        raise RequestError(404, "Not Found")


def _upload_of(values: dict[str, Any]) -> UploadFile:
    """Return the document of a request.

    Raises:
        RequestError: there is none.
    """
    upload = values.get("file")
    if upload is None:
        raise invalid("missing file parameter")
    if not isinstance(upload, UploadFile):
        raise invalid("empty file")
    return upload
