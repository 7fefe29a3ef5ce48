"""A service as Helion's remote cache: over REST alone, and behind Helion's own classes
where that is installed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.live_service import LiveService, options_for, serving
from tuner.client import Client, ServiceError


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    folder = tmp_path_factory.mktemp("service")
    with serving(options_for(f"sqlite:///{folder}/tuner.sqlite", folder)) as live:
        yield live


@pytest.fixture
def client(service: LiveService) -> Client:
    return service.client(service.key("submit"))


def test_entries_over_rest(client: Client) -> None:
    assert client.entry("other", "k1") is None
    assert list(client.entries("other")) == []
    content = '{"config": {"block_sizes": [16, 64]}, "text": "ä"}'
    assert client.put_entry("other", "k1", content).content == content
    client.put_entry("other", "k2", "2")
    client.put_entry("other", "k1", "1")
    entry = client.entry("other", "k1")
    assert entry is not None
    assert entry.content == "1"
    assert [entry.key for entry in client.entries("other", limit=1)] == ["k1", "k2"]


@pytest.mark.parametrize(
    ("store", "key", "content"),
    [
        ("Other", "k", "x"),
        ("other", "a b", "x"),
        ("other", "k" * 201, "x"),
        ("other", "k", "x" * (256 * 1024 + 1)),
    ],
)
def test_refused(client: Client, store: str, key: str, content: str) -> None:
    with pytest.raises(ServiceError) as caught:
        client.put_entry(store, key, content)
    assert caught.value.status == 422


def test_readers_put_nothing(service: LiveService, client: Client) -> None:
    client.put_entry("shared", "k", "x")
    reader = service.client(service.key("read"))
    entry = reader.entry("shared", "k")
    assert entry is not None
    with pytest.raises(ServiceError) as caught:
        reader.put_entry("shared", "k", "y")
    assert caught.value.status == 403


def test_behind_helions_own_loader(service: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = pytest.importorskip("helion.autotuner.remote_cache")
    monkeypatch.setenv("HELION_REMOTE_CACHE_BACKEND", "tuner.integrations.helion.ServiceCache")
    monkeypatch.setenv("TUNER_SERVER", service.url)
    monkeypatch.setenv("TUNER_TOKEN", service.key("submit"))
    backend = remote._load_remote_backend()
    assert remote._remote_get(backend, "h1") is None
    for number in range(3):
        remote._remote_put(backend, f"h{number}", json.dumps({"number": number}))
    assert remote._remote_get(backend, "h1") == '{"number": 1}'
    newest = [json.loads(text)["number"] for text in backend.list()]
    assert newest == [2, 1, 0]
    assert [json.loads(text)["number"] for text in backend.list(max_results=2)] == [2, 1]
    assert list(backend.list(max_results=0)) == []


def test_without_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("helion")
    monkeypatch.setenv("HELION_REMOTE_CACHE_BACKEND", "tuner.integrations.helion.ServiceCache")
    monkeypatch.delenv("TUNER_SERVER", raising=False)
    from helion.autotuner.remote_cache import _load_remote_backend  # noqa: PLC0415

    with pytest.raises(Exception, match="set TUNER_SERVER"):
        _load_remote_backend()
