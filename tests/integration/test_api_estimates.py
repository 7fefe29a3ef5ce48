"""Estimates over REST: where a figure comes from, what makes one possible, what is
refused, and that promotions are heard of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_service import LiveService, options_for, serving
from tests.support.promoted_products import EXTENTS, product, promote_products
from tests.support.targets import ZEN5
from tuner.api.estimate_schemas import MAX_ESTIMATES
from tuner.client import ServiceError
from tuner.db import kernels, promotions, targets


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LiveService]:
    options = options_for(f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path, target=ZEN5)
    with serving(options) as live:
        yield live


def test_each_figure_has_a_source_and_an_interval(service: LiveService) -> None:
    promote_products(service.database, ZEN5)
    asked = [product(128), product(132), {"op": "softmax", "params": {"M": 64, "N": 64}}]
    answer = service.client(service.key("read")).estimates(asked)
    measured, near, far = answer.items
    assert [item.source for item in answer.items] == ["measured", "neighbour", "predicted"]
    assert measured.median_s == pytest.approx(2 * 128 * 64 * 64 / 1e10)
    assert (measured.disturbed, measured.neighbour) == (False, None)
    assert near.neighbour is not None and near.neighbour.startswith("matmul:M=128,")
    assert near.kernel == measured.kernel and far.kernel is None
    assert near.median_s == pytest.approx(2 * 132 * 64 * 64 / 1e10, rel=0.1)
    assert all(item.low_s < item.median_s < item.high_s for item in answer.items)
    # An operator without a kernel is less sure than a neighbour.
    assert far.high_s / far.low_s > near.high_s / near.low_s
    assert answer.accuracy is not None and answer.accuracy.kernels == len(EXTENTS)
    assert (answer.target.key, answer.threads) == (ZEN5.key, 1)
    with service.http(service.key("read")) as http:
        metrics = http.get("/metrics").text
    assert f'tuner_estimate_coverage{{target="{ZEN5.key}",threads="1"}} ' in metrics


def test_a_promotion_and_a_rollback_are_heard_of(service: LiveService) -> None:
    promote_products(service.database, ZEN5)
    client = service.client(service.key("read"))
    (before,) = client.estimates([product(128)]).items
    assert before.kernel is not None
    with service.database.write() as session:
        promotions.rollback(session, before.kernel)
    after = client.estimates([product(128)])
    assert after.items[0].source != "measured" and after.accuracy is not None
    assert after.accuracy.kernels == len(EXTENTS) - 1


def test_a_target_without_measurements_says_what_would_help(service: LiveService) -> None:
    client = service.client(service.key("read"))
    with pytest.raises(ServiceError, match="learns from 8 or more; tune some") as caught:
        client.estimates([product(128)])
    assert (caught.value.status, caught.value.code) == (422, "too_few_kernels")
    promote_products(service.database, ZEN5)
    with pytest.raises(ServiceError, match="0 kernels with 2 threads"):
        client.estimates([product(128)], threads=2)


def test_what_was_measured_is_answered_even_where_nothing_can_be_learned(
    service: LiveService,
) -> None:
    promote_products(service.database, ZEN5)
    client = service.client(service.key("read"))
    (kept,) = client.estimates([product(128)]).items
    with service.database.write() as session:
        for kernel in kernels.list_page(session, target=ZEN5.key).items:
            if kernel.id != kept.kernel:
                promotions.rollback(session, kernel.id)
    answer = client.estimates([product(128)])
    assert answer.items[0].source == "measured" and answer.accuracy is None


def test_a_budget_goes_where_estimates_are_unsure_and_weights_high(service: LiveService) -> None:
    promote_products(service.database, ZEN5)
    client = service.client(service.key("submit"))
    far = {"op": "softmax", "params": {"M": 512, "N": 512}}
    asked = [product(128), product(129), product(130), far]
    job = client.learn(asked, seconds=50.0, weights=[9.0, 1.0, 1.0, 50.0], trials=10)
    # 128 was measured. Each gets 20 s or more, so that two are tuned.
    assert [task.workload.op for task in job.tasks] == ["softmax", "matmul"]
    assert (job.kind, job.seconds, job.trials) == ("tune", 25.0, 10)
    whole = client.learn(asked, seconds=300.0)
    assert len(whole.tasks) == 3 and whole.seconds == 100.0
    weighty = client.learn(asked, seconds=20.0, weights=[0.0, 0.0, 1.0, 0.0])
    assert [(task.workload.params or {})["M"] for task in weighty.tasks] == [130]


def test_a_target_without_measurements_learns_from_the_costliest(service: LiveService) -> None:
    client = service.client(service.key("submit"))
    job = client.learn([product(16), product(256), product(64)], seconds=40.0)
    assert [(task.workload.params or {})["M"] for task in job.tasks] == [256, 64]


def test_nothing_is_learned_twice_or_of_nothing(service: LiveService) -> None:
    promote_products(service.database, ZEN5)
    client = service.client(service.key("submit"))
    with pytest.raises(ServiceError, match="each has a kernel or no weight") as caught:
        client.learn([product(128)], seconds=60.0)
    assert (caught.value.status, caught.value.code) == (422, "nothing_to_learn")
    with pytest.raises(ServiceError, match="2 weights for 1 workloads"):
        client.learn([product(129)], seconds=60.0, weights=[1.0, 2.0])
    with pytest.raises(ServiceError, match="greater than or equal to 20"):
        client.learn([product(129)], seconds=19.0)
    with pytest.raises(ServiceError) as refused:
        service.client(service.key("read")).learn([product(129)], seconds=60.0)
    assert refused.value.status == 403


def test_as_many_workloads_as_are_allowed_fit_into_a_request(service: LiveService) -> None:
    promote_products(service.database, ZEN5)
    extents = {"N": 1, "H": 112, "W": 112, "CI": 128, "CO": 128, "KH": 3, "KW": 3}
    words = {"stride": 1, "pad": 1, "layout": "NHWC", "bias": True, "act": "relu"}
    asked = [{"op": "conv2d", "params": {**extents, **words}}] * MAX_ESTIMATES  # 1.6 MB
    answer = service.client(service.key("read")).estimates(asked)
    assert len(answer.items) == MAX_ESTIMATES
    assert len({item.median_s for item in answer.items}) == 1


def test_too_many_workloads_and_unknown_targets_are_refused(service: LiveService) -> None:
    with service.database.write() as session:
        targets.remember(session, ZEN5)
    client = service.client(service.key("read"))
    with pytest.raises(ServiceError, match=f"at most {MAX_ESTIMATES} items") as caught:
        client.estimates([{"op": "relu", "params": {}}] * (MAX_ESTIMATES + 1))
    assert caught.value.code == "invalid_request"
    with pytest.raises(ServiceError, match="'tpu' is not known"):
        client.estimates([product(128)], target="tpu")
    with pytest.raises(ServiceError, match=r"workloads\.1: .*matmull"):
        client.estimates([product(128), {"op": "matmull", "params": {"M": 1}}])
