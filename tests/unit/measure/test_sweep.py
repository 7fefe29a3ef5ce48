"""Emptying caches: as many readers at once as there are cores, again and again."""

from __future__ import annotations

import threading

import pytest

from tests.support.database_samples import sample_target
from tuner.errors import UsageError
from tuner.measure.cache import check_cache, refuse_cold
from tuner.measure.sweep import SWEEP_BYTES, sweeper


@pytest.mark.parametrize("cores", [1, 3])
def test_every_core_has_a_reader_of_its_own(cores: int) -> None:
    before = threading.active_count()
    empty = sweeper(cores)
    for _ in range(2):
        empty()
    # All wait for each other, so none reads twice while another does not.
    assert threading.active_count() == before + cores - 1
    assert SWEEP_BYTES >= 128 << 20


def test_cold_caches_are_refused_where_nobody_measures_them() -> None:
    check_cache("cold", sample_target())
    check_cache("warm", sample_target())
    refuse_cold("warm", "no matter")
    with pytest.raises(UsageError, match="cache is cold, and a range is one function; leave it"):
        refuse_cold("cold", "a range is one function")
