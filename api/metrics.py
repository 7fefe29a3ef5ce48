"""Metrics for Prometheus: requests of this process, and the fleet's state."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tuner.cost_model.latency import Accuracy
from tuner.db.totals import Totals

METHODS = frozenset({"GET", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"})
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)


class Metrics:
    """The metrics of one application, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "tuner_http_requests",
            "requests answered",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "tuner_http_request_seconds",
            "seconds from request to end of answer",
            ("route",),
            buckets=BUCKETS_S,
            registry=self.registry,
        )
        self.streams = Gauge("tuner_event_streams", "event streams open", registry=self.registry)
        self.jobs = Gauge("tuner_jobs", "jobs by state", ("state",), registry=self.registry)
        self.trials = Gauge(
            "tuner_trials", "trials recorded by outcome", ("outcome",), registry=self.registry
        )
        self.kernels = Gauge("tuner_kernels", "kernels promoted", registry=self.registry)
        self.regressions = Gauge(
            "tuner_regressions",
            "promoted kernels that lost, by kind, confirmed and not resolved",
            ("kind",),
            registry=self.registry,
        )
        self.waiting_runs = Gauge(
            "tuner_waiting_runs", "runs queued or under way", registry=self.registry
        )
        self.estimates = Gauge(
            "tuner_estimate_coverage",
            "share of kernels that lay in their interval of 90%, each left out",
            ("target", "threads"),
            registry=self.registry,
        )
        self.workers = Gauge(
            "tuner_workers", "workers by state", ("state",), registry=self.registry
        )

    def request(self, *, method: str, route: str, status: int, elapsed_s: float) -> None:
        self.requests.labels(method if method in METHODS else "other", route, str(status)).inc()
        self.seconds.labels(route).observe(elapsed_s)

    def fleet(self, totals: Totals) -> None:
        trials = {"ok": totals.trials_ok, "failed": totals.trials_failed}
        for gauge, counts in (
            (self.jobs, totals.jobs),
            (self.trials, trials),
            (self.workers, totals.workers),
            (self.regressions, totals.regressions),
        ):
            for label, count in counts.items():
                gauge.labels(label).set(count)
        self.kernels.set(totals.kernels)
        self.waiting_runs.set(totals.waiting_runs)

    def accuracy(self, learned: Mapping[tuple[str, int], Accuracy]) -> None:
        """Of the models that estimates learned in this process, by target and threads."""
        for (target, threads), accuracy in learned.items():
            self.estimates.labels(target, str(threads)).set(accuracy.coverage)

    def text(self) -> bytes:
        """The text exposition format, version 0.0.4."""
        return generate_latest(self.registry)
