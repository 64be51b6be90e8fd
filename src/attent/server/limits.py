"""API keys, rate limits in texts per minute for each key and address, and limits on concurrent use by an address."""

import hashlib
import hmac
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.requests import Request

from attent.bounded import read_text
from attent.errors import ArgumentError, DataError, reraise
from attent.server.errors import RequestError
from attent.server.settings import MINUTE, ServerSettings

# Maximum keys and addresses that are tracked; the least recently used ones are dropped.
MAX_CLIENTS = 100_000
MAX_KEYS_FILE = 2**20
# Maximum characters of an address; a proxy may forward one that a client made up.
MAX_ADDRESS = 64


def read_keys(file: Path) -> dict[bytes, int | None]:
    """Read API keys: one per line, each followed by a space and its texts per minute.

    Empty lines and comments (#) are ignored.

    Returns:
        The limit of each key by the key's SHA-256; None stands for the server's default limit.

    Raises:
        ArgumentError: the file cannot be read, or a line is invalid.
    """
    with reraise(ArgumentError, f"--api-keys-file {file} cannot be read", OSError, DataError):
        lines = read_text(file, MAX_KEYS_FILE).splitlines()
    keys: dict[bytes, int | None] = {}
    for number, line in enumerate(lines, start=1):
        key, *limits = line.split()[:3] or ("",)
        if not key or key.startswith("#"):
            continue
        if len(limits) > 1 or any(not limit.isdecimal() for limit in limits):
            raise ArgumentError(
                f"--api-keys-file {file}, line {number}: expected a key, a space and its texts per minute"
            )
        keys[_digest(key)] = int(limits[0]) if limits else None
    return keys


class AddressLimits:
    """Counts what addresses use concurrently, such as connections or bytes.

    Args:
        limit: the limit for all addresses together.
        address_limit: the limit for each address.
        exempt: addresses without an individual limit, such as a proxy's.
    """

    def __init__(self, limit: int, address_limit: int, exempt: Collection[str] = ()) -> None:
        self._limit, self._address_limit, self._exempt = limit, address_limit, exempt
        self._counts: Counter[str] = Counter()
        self._total = 0

    def admit(self, address: str, amount: int = 1) -> bool:
        """Count this amount and return True, or return False if it would exceed a limit."""
        if self._total + amount > self._limit or (
            self._counts[address] + amount > self._address_limit and address not in self._exempt
        ):
            return False
        self._counts[address] += amount
        self._total += amount
        return True

    def release(self, address: str, amount: int = 1) -> None:
        """Subtract an amount that was admitted."""
        self._total -= amount
        self._counts[address] -= amount
        if not self._counts[address]:
            del self._counts[address]


@dataclass
class Client:
    """The recent requests of a key or an address.

    Args:
        spent: the time, on the monotonic clock, and the number of texts of each request in the last minute.
        texts: the sum of these numbers.
    """

    spent: deque[tuple[float, int]] = field(default_factory=deque)
    texts: int = 0


class Gatekeeper:
    """Decides whether a request is served.

    Args:
        settings: the server's settings.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._keys: Mapping[bytes, int | None] = (
            {} if settings.api_keys_file is None else read_keys(settings.api_keys_file)
        )
        self._clients: OrderedDict[str, Client] = OrderedDict()

    @property
    def has_keys(self) -> bool:
        """Return whether there are API keys."""
        return bool(self._keys)

    def check_key(self, request: Request, values: Mapping[str, Any]) -> None:
        """Check the API key in the headers or the query string, if keys are required, before the body is read.

        A key in the body is checked by `admit`.

        Args:
            request: the client's request.
            values: the parameters of the query string.

        Raises:
            RequestError: the key is unknown.
        """
        key = key_of(request, values)
        if self._settings.require_api_key and key and not self._find(key)[0]:
            raise RequestError(403, "Invalid API key")

    def admit(self, request: Request, values: Mapping[str, Any], texts: int, *, is_admitted: bool = False) -> None:
        """Count the texts of a request, at least one.

        Args:
            request: the client's request.
            values: its parameters, which may hold its API key.
            texts: the number of texts to translate.
            is_admitted: whether the request was already admitted; its further texts then count only towards later
                requests.

        Raises:
            RequestError: the key is unknown or missing, or a limit is exceeded.
        """
        key, limit, name = key_of(request, values), self._settings.req_limit, ""
        if key or self._settings.require_api_key:
            is_valid, own_limit = self._find(key)
            if is_valid:
                limit, name = limit if own_limit is None else own_limit, f"key {_digest(key).hex()}"
            elif self._settings.require_api_key and not key:
                raise RequestError(400, "Please contact the server operator to get an API key")
            elif self._keys or self._settings.require_api_key:
                raise RequestError(403, "Invalid API key")
        if limit >= 0:
            self._count(self._client(name or self.address(request)), limit, max(texts, 1), is_admitted=is_admitted)

    def address(self, request: Request) -> str:
        """Return the address of a client.

        Behind trusted proxies this is the last address in X-Forwarded-For that is not a trusted proxy.
        """
        address = request.client.host if request.client else ""
        trusted = self._settings.trusted_proxy
        if address not in trusted:
            return address
        forwarded = [part.strip() for value in request.headers.getlist("x-forwarded-for") for part in value.split(",")]
        return next((part for part in reversed(forwarded) if part not in trusted), address)[:MAX_ADDRESS]

    def _find(self, key: str) -> tuple[bool, int | None]:
        """Return whether a key is known and its limit, in constant time."""
        digest, result = _digest(key), (False, None)
        for key_digest, limit in self._keys.items():
            if hmac.compare_digest(key_digest, digest):
                result = True, limit
        return result

    def _client(self, name: str) -> Client:
        client = self._clients.setdefault(name, Client())
        self._clients.move_to_end(name)
        if len(self._clients) > MAX_CLIENTS:
            self._clients.popitem(last=False)
        return client

    def _count(self, client: Client, limit: int, texts: int, *, is_admitted: bool) -> None:
        now = time.monotonic()
        while client.spent and client.spent[0][0] <= now - MINUTE:
            client.texts -= client.spent.popleft()[1]
        if not is_admitted and client.texts + texts > limit:
            wait = client.spent[0][0] + MINUTE - now if client.spent else MINUTE
            raise RequestError(429, f"Slowdown: {limit} per 1 minute", {"Retry-After": str(max(round(wait), 1))})
        client.spent.append((now, texts))
        client.texts += texts


def key_of(request: Request, values: Mapping[str, Any]) -> str:
    """Return the API key from the parameters or the Bearer token; empty if there is none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    key = values.get("api_key") or (token.strip() if scheme.lower() == "bearer" else "")
    return key if isinstance(key, str) else str(key)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
