"""Recorded calls over REST and as a page: what of a job has kernels by now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.support.database_samples import sample_kernel
from tests.support.live_service import LiveService, options_for, serving
from tests.support.targets import ZEN5
from tests.support.traced_calls import call, trace_of
from tuner.app.traces import submit_calls
from tuner.client import ServiceError
from tuner.db import promotions, targets, workloads
from tuner.settings import load_settings
from tuner.trace.workloads import express, expressed

A, B = np.ones((8, 16), "float32"), np.ones((16, 4), "float32")
PRODUCT = call("numpy.matmul", A, B, count=100, total_s=2.0)
INVERSE = call("numpy.linalg.inv", np.ones((3, 3)), {"value": float("inf")}, count=3, total_s=0.5)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LiveService]:
    options = options_for(f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path, target=ZEN5)
    with serving(options) as live:
        yield live


def submitted(service: LiveService) -> str:
    trace = trace_of(PRODUCT, call("numpy.exp", A, count=10, total_s=1.0), INVERSE)
    settings = load_settings({"trials": 5}).values
    calls = list(expressed(trace))
    return submit_calls(service.database, calls, trace.total_s, ZEN5, settings, seconds=60.0).id


def promote(service: LiveService) -> None:
    with service.database.write() as session:
        (part,) = express(PRODUCT).parts
        new = replace(
            sample_kernel(session, median_s=0.004),
            workload=workloads.remember(session, part.workload, {}),
            target=targets.remember(session, ZEN5),
        )
        promotions.promote(session, new)


def test_a_job_of_recorded_calls_says_what_has_kernels(service: LiveService) -> None:
    job = submitted(service)
    client = service.client(service.key("admin"))
    before = client.coverage(job)
    assert [item.state for item in before.items] == ["untuned", "untuned", "fallback"]
    assert before.unestimated is not None and before.gain_s == 0.0
    promote(service)
    after = client.coverage(job)
    product, _, inverse = after.items
    assert (product.state, product.measured, product.answered) == ("tuned", True, True)
    assert product.gain_s == after.gain_s == pytest.approx(2.0 - 100 * 0.004)
    assert 0 < after.run_gain_s < after.gain_s
    assert (after.total_s, after.tuned_s, after.untuned_s) == (3.5, 2.0, 1.0)
    assert "no expression yet" in str(inverse.reason)


def test_others_jobs_and_jobs_without_calls_have_none(service: LiveService) -> None:
    job = submitted(service)
    with pytest.raises(ServiceError, match=f"no job '{job}'"):
        service.client(service.key("read")).coverage(job)
    client = service.client(service.key("submit"))
    other = client.submit({"op": "matmul", "params": {"M": 8, "N": 8, "K": 8}}, trials=1)
    with pytest.raises(ServiceError, match="not made of recorded calls"):
        client.coverage(other.id)


def test_the_page_has_a_row_for_each_kind_of_call(service: LiveService) -> None:
    job = submitted(service)
    promote(service)
    cookies = {"tuner_session": service.key("admin")}
    with httpx.Client(base_url=service.url, cookies=cookies, timeout=30) as pages:
        page = pages.get(f"/jobs/{job}/coverage")
        assert page.status_code == 200 and "numpy.linalg.inv" in page.text
        assert page.text.count('<span class="chip ok">tuned</span>') == 1
        assert f"/jobs/{job}/coverage" in pages.get(f"/jobs/{job}").text
        assert pages.get("/jobs/j_none/coverage").status_code == 404
