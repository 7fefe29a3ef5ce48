"""Instances of a kernel side by side on the cores of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tuner
from tuner.app.kernels.kernel import Kernel
from tuner.app.races.throughput import throughput, throughputs
from tuner.errors import UsageError
from tuner.search.strategies import DEFAULT_STRATEGY
from tuner.settings import load_settings
from tuner.workload.spec import parse_spec

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("fleet"), pytest.mark.timeout(300)]

SPEC = "matmul:M=64,N=64,K=64"


def test_instances_add_up_and_threads_need_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    kernel = tuner.tune(SPEC, trials=1, strategy=DEFAULT_STRATEGY)
    assert isinstance(kernel, Kernel)
    cores, settings = sorted(os.sched_getaffinity(0)), load_settings().values
    alone = throughput(parse_spec(SPEC), kernel, cores[:1], settings)
    assert (alone.instances, alone.threads) == (1, 1)
    if len(cores) > 1:
        (both,) = throughputs(parse_spec(SPEC), [kernel], cores[:2], settings)
        assert both.instances == 2
    with pytest.raises(UsageError, match="needs as many cores, and there are 0"):
        throughput(parse_spec(SPEC), kernel, [], settings)
