"""The pages' requests against a real service: what has no workload yet, forms that are
not theirs, input that is odd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browsing import TOKEN, browser
from tests.support.database_samples import sample_target
from tests.support.described_models import description, measurement, settings
from tests.support.live_service import LiveService, options_for, serving
from tuner.api.dashboard.report import report
from tuner.db import jobs, leases, targets, workloads
from tuner.workload.expression import Tensor
from tuner.workload.spec import parse_spec, to_document


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    folder: Path = tmp_path_factory.mktemp("pages")
    with serving(options_for(f"sqlite:///{folder}/tuner.sqlite", folder)) as live:
        yield live


def model_job(service: LiveService) -> str:
    with service.database.write() as session:
        target = targets.remember(session, sample_target())
        new = jobs.NewJob(
            workloads=(),
            target=target,
            threads=1,
            trials=4,
            kind=jobs.MODEL,
            settings={"model": "0" * 64},
        )
        return jobs.create(session, new)[0].id


def test_a_models_page_shows_its_graph_its_shares_and_its_library(service: LiveService) -> None:
    inputs = [Tensor(name="image<0>", shape=(1, 3, 8, 8), dtype="float32")]
    with service.database.write() as session:
        spec = parse_spec("matmul:M=2,N=3,K=4")
        key = workloads.remember(session, spec, to_document(spec))
        made = description([key, "cd" * 32], steps=4, inputs=inputs)
        new = jobs.NewJob(
            workloads=(key,),
            target=targets.remember(session, sample_target()),
            threads=1,
            trials=4,
            kind=jobs.MODEL,
            settings=settings(session, service.store, made, measurement([key, "cd" * 32])),
        )
        job = jobs.create(session, new)[0].id
    with browser(service, service.key("admin")) as pages:
        page = pages.get(f"/jobs/{job}")
        assert page.status_code == 200
        for words in (
            "A model of 2 kernels",
            "3.00 ms",
            "2.0e-06",
            "image&lt;0&gt;",
            "1×3×8×8",
            "97%",
            "×32",
            f'href="/jobs/{job}?task=0"',
            f'href="/jobs/{job}/library"',
        ):
            assert words in page.text, words
        assert page.text.count('class="rail"') == 4
        assert "A model of 2 kernels" in pages.get(f"/jobs/{job}/parts/model").text
        assert f'<a href="/jobs/{job}">model</a>' in pages.get(f"/jobs/{job}?task=0").text
        fetched = pages.get(f"/jobs/{job}/library")
        assert (fetched.content, fetched.headers["content-type"]) == (
            b"archive",
            "application/gzip",
        )
    with browser(service, service.key("submit")) as others:
        assert others.get(f"/jobs/{job}").status_code == 404
        assert others.get(f"/jobs/{job}/library").status_code == 404


def test_a_model_that_was_not_read_has_its_pages(service: LiveService) -> None:
    job = model_job(service)
    with browser(service, service.key("admin")) as pages:
        waiting = pages.get(f"/jobs/{job}")
        assert (
            waiting.status_code == 200
            and "its model is still to be read" in waiting.text
            and "refresh" in waiting.text
        )
        assert "its model is still to be read" in pages.get("/").text
        assert (
            f"job {job} has no workload" in pages.get("/compare", params={"a": job, "b": job}).text
        )
        lease = service.claim(job)
        with service.database.write() as session:
            leases.finish(session, lease, jobs.FAILED, error="the file is no ONNX model")
        for path in ("/", "/parts/jobs", f"/jobs/{job}"):
            page = pages.get(path)
            assert page.status_code == 200 and "the file is no ONNX model" in page.text, path
        assert "refresh" not in pages.get(f"/jobs/{job}").text
    with service.database.read() as session:
        assert "the file is no ONNX model" in report(session, job)


def test_a_form_without_its_cookie_is_refused(service: LiveService) -> None:
    key, job = service.key("admin"), service.queue()
    for kept, sent in ((None, "-"), (None, ""), ("x", "x"), (TOKEN, "x")):
        with browser(service, key, kept) as pages:
            assert (
                pages.post(f"/jobs/{job}/cancel", data={"form_token": sent}).status_code == 403
            ), (kept, sent)
    with browser(service, key) as pages:
        assert pages.post(f"/jobs/{job}/cancel", data={"form_token": TOKEN}).status_code == 303


def test_who_has_a_key_signs_in_beside_those_who_guess(tmp_path: Path) -> None:
    options = options_for(
        f"sqlite:///{tmp_path}/tuner.sqlite",
        tmp_path,
        failed_login_burst=2,
        failed_logins_per_s=0.01,
    )
    with serving(options) as live, browser(live, "") as pages:

        def status(key: str) -> int:
            return pages.post("/login", data={"form_token": TOKEN, "key": key}).status_code

        assert [status("tk_abc_def") for _ in range(4)] == [401, 401, 429, 429]
        assert status(live.key("read")) == 303


def test_resuming_on_a_page_counts_as_it_does_elsewhere(service: LiveService) -> None:
    key = service.key("submit", quota=1)
    owner = key.split("_")[1]
    first, second = service.queue(owner), service.queue(owner, (24, 8, 4))
    with browser(service, key) as pages:
        assert pages.post(f"/jobs/{second}/cancel", data={"form_token": TOKEN}).status_code == 303
        refused = pages.post(f"/jobs/{second}/resume", data={"form_token": TOKEN})
        assert refused.status_code == 429 and "1 unfinished job" in refused.text
        assert pages.post(f"/jobs/{first}/cancel", data={"form_token": TOKEN}).status_code == 303
        assert pages.post(f"/jobs/{second}/resume", data={"form_token": TOKEN}).status_code == 303


@pytest.mark.parametrize("until", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00"])
def test_no_moment_breaks_the_page_of_the_fleet(service: LiveService, until: str) -> None:
    with browser(service, service.key("read")) as pages:
        page = pages.get("/fleet", params={"until": until})
        assert page.status_code == 400 and "give a moment between" in page.text


@pytest.mark.parametrize(
    "field",
    [
        {"threads": "²"},
        {"threads": "--5"},
        {"threads": "0"},
        {"threads": "5000"},
        {"trials": "²"},
        {"seconds": "nan"},
    ],
)
def test_the_check_refuses_what_the_submission_would(
    service: LiveService, field: dict[str, str]
) -> None:
    fields = {"form_token": TOKEN, "op": "matmul", "p_M": "8", "p_N": "8", "p_K": "8"} | field
    with browser(service, service.key("submit")) as pages:
        checked, submitted = (
            pages.post("/submit/check", data=fields),
            pages.post("/submit", data=fields),
        )
        assert checked.status_code == 200 and "configs" not in checked.text, checked.text
        assert submitted.status_code == 422
        assert (
            pages.post(
                "/submit/check", data=fields | {"form": "notation", "shapes": "M=²"}
            ).status_code
            == 200
        )


def test_a_form_that_is_sent_twice_makes_one_job_and_a_changed_one_another(
    service: LiveService,
) -> None:
    fields = {"form_token": TOKEN, "op": "matmul", "p_M": "8", "p_N": "8", "p_K": "8", "once": "x"}
    with browser(service, service.key("submit")) as pages:
        places = []
        for change in ({}, {}, {"p_M": "9"}):
            answer = pages.post("/submit", data=fields | change)
            assert answer.status_code == 303, answer.text
            places.append(answer.headers["location"])
    assert places[0] == places[1] != places[2]


def test_the_rate_of_a_resumed_job_is_that_of_its_runs(service: LiveService) -> None:
    job = service.queue()
    lease = service.claim(job)
    with service.database.write() as session:
        leases.note_task(session, lease, 0, elapsed_s={"total": 3600.0})
        leases.finish(session, lease, jobs.CANCELLED)
    with browser(service, service.key("admin")) as pages:
        assert "elapsed 1 h" in pages.get(f"/jobs/{job}/parts/head").text
        with service.database.write() as session:
            jobs.resume(session, job)
        service.claim(job)
        assert "elapsed 1 h" in pages.get(f"/jobs/{job}/parts/head").text
