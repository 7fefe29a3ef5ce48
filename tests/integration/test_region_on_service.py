"""A region that a service is to tune, while the service stops and comes back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.support.live_service import LiveService, options_for, serving, wait_for
from tests.support.torch_libraries import double_graph
from tuner.db import jobs
from tuner.torch.making import Making, TuningFailed, made
from tuner.torch.options import options_from


def _jobs(service: LiveService) -> list[str]:
    with service.database.read() as session:
        return [job.id for job in jobs.list_page(session).items]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_service_that_stops_costs_the_attempt_and_its_job_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path / "own"))
    options = options_for(f"sqlite:///{tmp_path}/tuner.sqlite", tmp_path, models=True)
    with ThreadPoolExecutor(1) as attempts:
        with serving(options) as service:
            monkeypatch.setenv("TUNER_TOKEN", service.key("submit", "read"))
            url = service.url
            making = Making(
                graph=double_graph().content,
                key="k",
                folder=tmp_path / "torch",
                background=False,
                settings=options_from(None, {"seconds": 100, "server": url}).settings,
            )
            attempt = attempts.submit(made, making)
            wait_for(lambda: attempt.done() or len(_jobs(service)) == 1, timeout_s=100)
        with pytest.raises(TuningFailed, match=f"{url}.*(dropped the stream|does not answer)"):
            attempt.result(timeout=120)
        with serving(replace(options, port=int(url.rpartition(":")[2]))) as service:
            attempt = attempts.submit(made, making)
            (job,) = _jobs(service)

            def taken_back() -> bool:
                """It is resumed where it was cancelled before the attempt follows it."""
                with service.database.write() as session:
                    jobs.request_cancel(session, job)
                return attempt.done()

            wait_for(taken_back, timeout_s=100)
            with pytest.raises(TuningFailed, match=f"job {job} of {url} cancelled"):
                attempt.result(timeout=120)
            assert _jobs(service) == [job]
