"""Settings of the translation server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

MINUTE = 60.0
# Bytes of a body beside its texts or its document: the other parameters, and what frames them.
SPARE = 2**16
# Bytes of a body with texts, however many the limits allow; a single text of the largest size comes whole all the same.
MAX_TEXTS = 2**24


@dataclass(frozen=True)
class ServerSettings:
    """The limits of the server, and how it computes.

    Args:
        char_limit: characters of a request; no limit if negative.
        batch_limit: texts of a request; no limit if negative.
        alternatives_limit: further translations that a request may ask for.
        request_limit: texts a minute for each address or key that has no limit of its own; no limit if None.
        ban_after: refusals for too many requests within an hour after which an address is refused altogether; never if
            None.
        requires_key: whether a request needs an API key.
        keys_file: lines of an API key and, after a space, its texts a minute; None without keys.
        trusted_proxies: addresses whose X-Forwarded-For is believed.
        origin: the web pages that may ask, "*" for all.
        beam: hypotheses of the search.
        window: seconds that a sentence waits for others of its batch.
        batch: sentences of a batch.
        queue_limit: sentences that may wait; a request beyond it is refused at once.
        threads: batches that are translated at the same time, each on a processor core.
        timeout: seconds after which a request is given up.
        connection_limit: connections of all clients; fewer where the system gives fewer descriptors.
        address_limit: connections from one address; trusted proxies have no limit of their own.
        body_limit: bytes of the bodies of all requests under way, or of the largest one if that is more.
        address_body_limit: those of one address.
        has_files: whether documents are translated.
        max_file: bytes of a document.
        file_lifetime: seconds after which a translated document is deleted.
        logs_requests: whether the log has a line for each request: endpoint, status and time.
        logs_texts: whether the log has the texts of requests too.
        metrics_token: what a reader of /metrics must send; anybody may read them if None.
    """

    char_limit: int = 5_000
    batch_limit: int = 50
    alternatives_limit: int = 5
    request_limit: int | None = None
    ban_after: int | None = None
    requires_key: bool = False
    keys_file: Path | None = None
    trusted_proxies: frozenset[str] = field(default_factory=frozenset)
    origin: str = "*"
    beam: int = 1
    window: float = 0.003
    batch: int = 64
    queue_limit: int = 2_048
    threads: int = 1
    timeout: float = 60.0
    connection_limit: int = 4_096
    address_limit: int = 512
    body_limit: int = 2**27
    address_body_limit: int = 2**25
    has_files: bool = True
    max_file: int = 10 * 2**20
    file_lifetime: float = 30 * MINUTE
    logs_requests: bool = True
    logs_texts: bool = False
    metrics_token: str | None = None

    @property
    def max_text(self) -> int:
        """Bytes of one text: each character may take 12, as an escaped pair of surrogates."""
        return 12 * (self.char_limit if self.char_limit >= 0 else 2**20)

    @property
    def max_texts(self) -> int:
        """Bytes of a body with as many texts as a request may have."""
        texts = MAX_TEXTS if self.batch_limit < 0 else self.max_text * self.batch_limit
        return max(self.max_text, min(texts, MAX_TEXTS)) + SPARE

    @property
    def max_document(self) -> int:
        """Bytes of a body with a document."""
        return self.max_file + SPARE
