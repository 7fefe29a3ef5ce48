"""Keys found right are remembered for a moment, and no longer."""

from __future__ import annotations

from tuner.api.auth import Caller, RecentKeys


def test_a_key_is_remembered_for_its_moment_only() -> None:
    now = [0.0]
    recent = RecentKeys(keep_s=1.0, clock=lambda: now[0])
    caller = Caller(key_id="a", scopes=frozenset({"read"}))
    assert recent.get("tk_a_x") is None
    recent.put("tk_a_x", caller)
    assert recent.get("tk_a_x") is caller and recent.get("tk_a_y") is None
    now[0] = 1.0
    assert recent.get("tk_a_x") is None


def test_memory_is_bounded() -> None:
    recent = RecentKeys(keep_s=1.0, names=2, clock=lambda: 0.0)
    for number in range(3):
        recent.put(str(number), Caller(key_id=str(number), scopes=frozenset()))
    assert [recent.get(str(number)) is not None for number in range(3)] == [False, True, True]
