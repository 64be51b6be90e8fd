"""Settings of the translation server."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from attent.setting import Bound, Help

MINUTE = 60.0
# Bytes of a body besides its texts or its document: other parameters and framing.
SPARE = 2**16
# Maximum bytes of a body with texts, even if the limits allow more; a single text of the maximum size is always
# accepted.
MAX_TEXTS = 2**24


@dataclass(frozen=True)
class ServerSettings:
    """The server's limits and computation settings, with LibreTranslate's names where they exist.

    Args:
        body_limit: maximum bytes of the bodies of all pending requests, or of one body of the maximum size if that is
            more.
        address_body_limit: the same limit for one address.
        max_file: maximum bytes of a document.
        file_lifetime: seconds after which a translated document is deleted.
        log_texts: whether the texts of requests are logged too.
    """

    # prefix of the environment variables, as in LibreTranslate
    variables: ClassVar[str] = "LT_"

    host: Annotated[str, Help("Address to listen on; 0.0.0.0 for all interfaces.")] = "127.0.0.1"
    port: Annotated[int, Bound(0, 65535), Help("Port to listen on; 0 for a free one.")] = 5000
    char_limit: Annotated[int, Bound(-1), Help("Maximum characters per request; -1 for no limit.")] = 5_000
    batch_limit: Annotated[int, Bound(-1), Help("Maximum texts per request; -1 for no limit.")] = 50
    alternatives_limit: Annotated[int, Bound(0, 100), Help("Maximum alternatives that a request may ask for.")] = 5
    req_limit: Annotated[
        int, Bound(-1), Help("Maximum texts per minute for each address or key; -1 for no limit.")
    ] = -1
    api_keys_file: Annotated[
        Path | None, Help("File of API keys: lines of key, space, texts per minute; 0 blocks the key.")
    ] = None
    require_api_key: Annotated[bool, Help("Refuse requests without a key from --api-keys-file.")] = False
    trusted_proxy: Annotated[
        tuple[str, ...], Help("Proxy whose X-Forwarded-For header is trusted; repeatable.", "ADDRESS")
    ] = ()
    allow_origin: Annotated[str, Help("Origin of web pages that may send requests; * for all.")] = "*"
    beam: Annotated[int, Bound(1, 100), Help("Beam size of the search.")] = 1
    minimum_confidence: Annotated[
        float, Bound(0, 1), Help("Confidence below which a sentence stays untranslated; 0 for none.")
    ] = 0.0
    threads: Annotated[
        int | None,
        Bound(1),
        Help("Batches computed in parallel, one core each; all cores unless given, or 1 on a GPU."),
    ] = None
    batch: Annotated[int, Bound(1), Help("Maximum sentences in a batch.")] = 64
    window: Annotated[
        float, Bound(0, 1000), Help("Milliseconds that a sentence waits for others to share its batch.")
    ] = 3.0
    queue_limit: Annotated[int, Bound(1), Help("Maximum waiting sentences; further requests are refused.")] = 2_048
    timeout: Annotated[float, Bound(0.1), Help("Seconds after which a request is abandoned.")] = 60.0
    connection_limit: Annotated[
        int, Bound(1), Help("Maximum connections; fewer if the system allows fewer file descriptors.")
    ] = 4_096
    address_limit: Annotated[
        int, Bound(1), Help("Maximum connections from one address, except from trusted proxies.")
    ] = 512
    disable_files_translation: Annotated[bool, Help("Do not translate documents: refuse POST /translate_file.")] = False
    metrics_auth_token: Annotated[
        str | None, Help("Bearer token required to read /metrics; without it, /metrics is public.")
    ] = None
    log_requests: Annotated[bool, Help("Log the endpoint, status and time of each request, but no texts.")] = False
    body_limit: int = 2**27
    address_body_limit: int = 2**25
    max_file: int = 10 * 2**20
    file_lifetime: float = 30 * MINUTE
    log_texts: bool = False

    @property
    def workers(self) -> int:
        """The number of threads that compute batches."""
        return self.threads or 1

    @property
    def max_text(self) -> int:
        """Maximum bytes of one text: a character may take 12, as an escaped pair of surrogates."""
        return 12 * (self.char_limit if self.char_limit >= 0 else 2**20)

    @property
    def max_texts(self) -> int:
        """Maximum bytes of a body with texts."""
        texts = MAX_TEXTS if self.batch_limit < 0 else self.max_text * self.batch_limit
        return max(self.max_text, min(texts, MAX_TEXTS)) + SPARE

    @property
    def max_document(self) -> int:
        """Maximum bytes of a body with a document."""
        return self.max_file + SPARE
