"""A service with samples of everything, and the addresses of its pages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tests.support import dashboard_samples as samples
from tests.support.dashboard_samples import Samples
from tests.support.live_service import LiveService
from tuner.db import trials

LARGE = 100_000


@dataclass(frozen=True, kw_only=True)
class Site:
    live: LiveService
    made: Samples

    @cached_property
    def large(self) -> str:
        """A job of so many trials, made when a test first asks for it."""
        return samples.large_job(self.live.database, LARGE)

    @property
    def host(self) -> str:
        return self.live.url.removeprefix("http://")

    def path(self, name: str) -> str:
        made = self.made
        return {
            "overview": "/",
            "job": f"/jobs/{made.succeeded}",
            "running": f"/jobs/{made.running.job_id}",
            "large": f"/jobs/{self.large}?x=time",
            "failed": f"/jobs/{made.failed}",
            "empty": f"/jobs/{made.queued}",
            "notation-job": f"/jobs/{made.notation}",
            "model": f"/jobs/{made.model}",
            "model-kernel": f"/jobs/{made.model}?task=1",
            "trial": f"/jobs/{made.succeeded}/trials/5",
            "failed-trial": f"/jobs/{made.succeeded}/trials/{self.failed_trial()}",
            "kernels": "/kernels",
            "kernel": f"/kernels/{made.kernel}",
            "compare": "/compare",
            "compare-jobs": f"/compare?a={made.succeeded}&b={made.cancelled}",
            "compare-kernels": f"/compare?a={made.kernel}&b={made.previous}",
            "fleet": "/fleet",
            "submit": "/submit?op=conv2d",
            "submit-notation": "/submit?form=notation",
            "missing": "/jobs/j_nothing",
        }[name]

    def failed_trial(self) -> int:
        with self.live.database.read() as session:
            return trials.failure_groups(session, self.made.succeeded)[0].example
