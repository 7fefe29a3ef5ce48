"""Libraries of regions on disk: whole or not there, and never another's."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from tuner.models.graph_archive import packed
from tuner.models.library.region_cache import (
    CacheDamaged,
    RaceResult,
    RegionCache,
    WaitIsOver,
    put,
    region_key,
)
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.elementwise import elementwise


def digest(factor: float) -> str:
    builder = GraphBuilder()
    x = builder.input([4], "float32")
    scaled = elementwise("scaled", lambda e: e * factor, x)
    return sha256(packed(builder.graph([scaled], ["in0", "out0"]))).hexdigest()


def test_a_key_is_of_what_is_computed_and_for_what() -> None:
    key = region_key(digest(2), "cpu", 1, None, None)
    assert key == region_key(digest(2), "cpu", 1, None, None)
    others = {
        region_key(digest(3), "cpu", 1, None, None),
        region_key(digest(2), "other", 1, None, None),
        region_key(digest(2), "cpu", 2, None, None),
        region_key(digest(2), "cpu", 1, "fast", None),
        region_key(digest(2), "cpu", 1, None, 1e-3),
    }
    assert len(others) == 5 and key not in others


def test_what_was_kept_is_there(tmp_path: Path) -> None:
    cache = RegionCache(folder=tmp_path / "torch")
    assert cache.find("key") is None
    path = cache.keep("key", b"library")
    assert cache.find("key") == path and path.read_bytes() == b"library"
    assert cache.find("other") is None
    (path.parent / "tmpabc.partial").write_bytes(b"libr")  # of a process that was killed
    better = cache.keep("key", b"better")
    assert cache.find("key") == better and [*path.parent.iterdir()] == [better]
    cache.discard("key")
    assert cache.find("key") is None


def test_what_was_not_used_for_the_longest_time_makes_room(tmp_path: Path) -> None:
    cache = RegionCache(folder=tmp_path, most_bytes=30)
    first, second = (cache.keep(key, key.encode() * 10) for key in ("a", "b"))
    trace = tmp_path / "traces" / "graph.trace"
    put(trace, b"t" * 10)
    for number, path in enumerate((first, second, trace)):
        os.utime(path, ns=(number, number))
    assert cache.find("a") == first  # of another process, which marks its use
    newest = cache.keep("c", b"c" * 10)
    assert [path.exists() for path in (first, second, trace, newest)] == [True, False, True, True]
    assert cache.find("b") is None
    alone = cache.keep("d", b"d" * 50)  # more than there may be
    assert [*tmp_path.glob("*/*.so")] == [alone] and not trace.exists()


def test_without_a_bound_all_is_kept(tmp_path: Path) -> None:
    cache = RegionCache(folder=tmp_path)
    paths = [cache.keep(key, key.encode() * 10) for key in "abc"]
    assert all(path.exists() for path in paths)


def test_a_removed_library_takes_its_race_along(tmp_path: Path) -> None:
    cache = RegionCache(folder=tmp_path, most_bytes=10)
    old = cache.keep("a", b"a" * 10)
    cache.note("a", RaceResult(library_s=1.0, pytorch_s=2.0))
    os.utime(old, ns=(0, 0))
    cache.keep("b", b"b" * 10)
    assert cache.find("a") is None and cache.race("a") is None


def test_damage_is_seen(tmp_path: Path) -> None:
    cache = RegionCache(folder=tmp_path)
    path = cache.keep("key", b"library")
    path.write_bytes(b"librarx")
    with pytest.raises(CacheDamaged, match=r"is damaged and has to be made again"):
        cache.find("key")


def test_a_disk_without_room_leaves_what_there_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = RegionCache(folder=tmp_path)
    path = cache.keep("key", b"library")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        cache.keep("key", b"better")
    assert cache.find("key") == path
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_lock_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    cache = RegionCache(folder=tmp_path)
    with cache.lock("key"), cache.lock("other"):
        pass
    with cache.lock("key"):
        assert (tmp_path / "key" / "lock").exists()
        with pytest.raises(WaitIsOver), cache.lock("key", lambda: True):
            pass
    with cache.lock("key", lambda: True):
        pass
