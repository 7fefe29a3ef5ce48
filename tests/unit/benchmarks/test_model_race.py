"""Races of models: what one contestant leaves running does not slow the next."""

from __future__ import annotations

import threading
import time

import pytest

from benchmarks.models import race


def test_a_sample_waits_for_threads_that_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "LOOK_S", 0.05)  # that a busy machine lets the thread run in
    ends_s = time.monotonic() + 0.15

    def spin() -> None:
        while time.monotonic() < ends_s:
            pass

    thread = threading.Thread(target=spin)
    thread.start()
    race.settle()
    settled_s = time.monotonic()
    thread.join()
    assert ends_s <= settled_s < ends_s + race.PATIENCE_S
