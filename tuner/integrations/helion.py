"""A service as the remote cache of Helion, the kernel language of PyTorch.

Set `HELION_REMOTE_CACHE_BACKEND=tuner.integrations.helion.ServiceCache` and
`HELION_AUTOTUNE_CACHE=RemoteAutotuneCache`. The service and its key are those of the
settings `server` and `token`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from helion.autotuner.remote_cache import RemoteCacheBackend

from tuner.client import Client, Retries
from tuner.errors import UsageError
from tuner.settings import load_settings

STORE = "helion"
TIMEOUT_S = 10.0
# Helion goes on without its cache when that fails: it is not to wait for long.
RETRIES = Retries(attempts=2, first_pause_s=0.1, longest_pause_s=1.0)
PAGE = 100  # entries asked for at a time


class ServiceCache(RemoteCacheBackend):  # type: ignore[misc]  # helion is not followed
    """Helion's `RemoteCacheBackend` on a store of a service. Thread-safe."""

    def __init__(self, client: Client | None = None) -> None:
        """Raises UsageError where the settings name no service."""
        self._client = client or _client()

    def get(self, key: str) -> str | None:
        """The JSON that was put under the key; None where there is none. Raises ServiceError."""
        entry = self._client.entry(STORE, key)
        return None if entry is None else entry.content

    def put(self, key: str, data: str) -> None:
        """Keep a JSON text under the key. Raises ServiceError."""
        self._client.put_entry(STORE, key, data)

    def list(self, max_results: int | None = None) -> Iterator[str]:
        """The texts, the newest first. Raises ServiceError."""
        limit = PAGE if max_results is None else max(1, min(PAGE, max_results))
        newest = self._client.entries(STORE, limit=limit)
        return (entry.content for entry in islice(newest, max_results))


def _client() -> Client:
    settings = load_settings().values
    if not settings.server:
        raise UsageError(
            "Helion's cache needs a service; set TUNER_SERVER to its address, such as "
            "http://127.0.0.1:8077, and TUNER_TOKEN to a key that may submit"
        )
    key = settings.token.get_secret_value()
    return Client(settings.server, key=key or None, timeout_s=TIMEOUT_S, retries=RETRIES)
