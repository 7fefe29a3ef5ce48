"""Estimates of kernels' times from what was promoted, without a compiler or a job.

An estimator keeps what it found out about workloads, and the models it has learned. A
model is learned anew when a kernel was promoted or rolled back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from threading import Lock

from tuner.api import answers
from tuner.api.estimate_schemas import AccuracyAnswer, EstimateAnswer, EstimatesAnswer
from tuner.cost_model.cpu.fastest import fastest_estimate
from tuner.cost_model.latency import LEAST, Accuracy, Description, Latency, LatencyModel, Measured
from tuner.db import promoted_kernels, workloads
from tuner.db.engine import Database
from tuner.db.kernels import Kernel
from tuner.errors import UsageError, WorkloadError
from tuner.target.capability import target_flag
from tuner.target.roofline import Work, least_seconds
from tuner.target.target import Target
from tuner.workload.compulsory import least_bytes
from tuner.workload.spec import from_document
from tuner.workload.workload import Workload

LEARNED_FROM = 500  # the newest kernels; what learns is cubic in their number
DESCRIPTIONS = 16_384  # kept, some 2 KB each


class TooFewKernels(UsageError):
    """Nothing, or too little, was measured of a target to estimate from."""

    code = "too_few_kernels"


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A model with the kernels it learned from, in the model's order."""

    stamp: promoted_kernels.Stamp
    model: LatencyModel
    kernels: tuple[tuple[str, str], ...]  # id and spec of the workload


class Estimator:
    """Answers estimates from a database. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = Lock()
        self._described: OrderedDict[tuple[str, str, int], Description] = OrderedDict()
        self._learned: dict[tuple[str, int], Learned] = {}

    def estimate(self, asked: Sequence[Workload], target: Target, threads: int) -> EstimatesAnswer:
        """An estimate of each workload, in their order.

        Raises TooFewKernels where a workload was not measured and there is too little to
        learn from, WorkloadError for one that has no space.
        """
        keys = list(dict.fromkeys(workload.key for workload in asked))
        with self._database.read() as session:
            measured = promoted_kernels.promoted_of(session, keys, target.key, threads)
        unmeasured = {workload.key: workload for workload in asked if workload.key not in measured}
        learned = self._model(target, threads, needed=bool(unmeasured))
        predicted: dict[str, EstimateAnswer] = {}
        if learned is not None and unmeasured:
            described = [self._describe(each, target, threads) for each in unmeasured.values()]
            latencies = learned.model.predict(described)
            predicted = {
                workload.key: _predicted(workload, latency, learned)
                for workload, latency in zip(unmeasured.values(), latencies, strict=True)
            }
        return EstimatesAnswer(
            items=[
                _measured(workload, measured[workload.key])
                if workload.key in measured
                else predicted[workload.key]
                for workload in asked
            ],
            target=answers.target_ref(target),
            threads=threads,
            accuracy=None
            if learned is None
            else AccuracyAnswer.model_validate(asdict(learned.model.accuracy)),
        )

    def most_telling(
        self,
        asked: Sequence[Workload],
        weights: Sequence[float],
        target: Target,
        threads: int,
        count: int,
    ) -> list[Workload]:
        """Which unmeasured workloads to tune, so that the weighted times of all are surest.

        At most `count`, the most telling first. Before there are kernels to learn from,
        those of the greatest weight times estimated cycles. Raises WorkloadError for one
        that has no space.
        """
        weighed: dict[str, float] = {}
        for workload, weight in zip(asked, weights, strict=True):
            weighed[workload.key] = weighed.get(workload.key, 0.0) + weight
        by_key = {workload.key: workload for workload in asked}
        with self._database.read() as session:
            measured = promoted_kernels.promoted_of(session, list(by_key), target.key, threads)
        left = [key for key in by_key if key not in measured and weighed[key] > 0]
        described = [self._describe(by_key[key], target, threads) for key in left]
        learned = self._model(target, threads, needed=False)
        if not left:
            return []
        own = [weighed[key] for key in left]
        if learned is not None:
            order = learned.model.most_telling(described, own, count)
        else:
            costs = [weight * each.cycles for weight, each in zip(own, described, strict=True)]
            order = sorted(range(len(left)), key=lambda place: -costs[place])[:count]
        return [by_key[left[place]] for place in order]

    def accuracies(self) -> dict[tuple[str, int], Accuracy]:
        """How wrong the models are that were learned so far, by target and threads."""
        with self._lock:
            return {place: learned.model.accuracy for place, learned in self._learned.items()}

    def _model(self, target: Target, threads: int, *, needed: bool) -> Learned | None:
        """The model of all kernels promoted until now; None where too few are and none is
        needed."""
        place = (target.key, threads)
        with self._database.read() as session:
            stamp = promoted_kernels.stamp_of(session, target.key, threads)
            kept = self._learned.get(place)
            if kept is not None and kept.stamp == stamp:
                return kept
            promoted = promoted_kernels.searched_on(
                session, target.key, threads, limit=LEARNED_FROM
            )
            stored = workloads.get_many(session, [kernel.workload for kernel in promoted])
        measured, named = [], []
        for kernel in () if target.on_device else promoted:
            try:
                workload = from_document(stored[kernel.workload].document)
                described = self._describe(workload, target, threads)
            except WorkloadError:
                continue  # of another version of the notation
            measured.append(
                Measured(described=described, median_s=kernel.median_s, ci95_s=kernel.ci95_s)
            )
            named.append((kernel.id, stored[kernel.workload].spec))
        if len(measured) < LEAST:
            if needed:
                raise TooFewKernels(_too_few(target, threads, len(measured)))
            return None
        learned = Learned(stamp=stamp, model=LatencyModel(measured), kernels=tuple(named))
        with self._lock:
            self._learned[place] = learned
        return learned

    def _describe(self, workload: Workload, target: Target, threads: int) -> Description:
        place = (workload.key, target.key, threads)
        with self._lock:
            kept = self._described.get(place)
            if kept is not None:
                self._described.move_to_end(place)
                return kept
        described = describe(workload, target, threads)
        with self._lock:
            self._described[place] = described
            if len(self._described) > DESCRIPTIONS:
                self._described.popitem(last=False)
        return described


def describe(workload: Workload, target: Target, threads: int) -> Description:
    """What the predictor learns a workload's time from. Takes tens of milliseconds."""
    expression, params = workload.expression, workload.params
    extents = {
        name: value
        for name, value in params.items()
        if isinstance(value, int) and not isinstance(value, bool)
    }
    words = {name: value for name, value in params.items() if name not in extents}
    work = Work(
        flops=expression.flops,
        nbytes=least_bytes(workload),
        dtype=expression.inputs[0].dtype if expression.inputs else "float32",
        threads=threads,
    )
    fastest = fastest_estimate(workload, target, threads)
    return Description(
        op=workload.op,
        words=(
            *sorted(words.items()),
            ("const", workload.constants),
            ("numerics", workload.numerics),
        ),
        extents=extents,
        flops=work.flops,
        nbytes=work.nbytes,
        roofline_s=None if target.limits is None else least_seconds(work, target),
        cycles=fastest.cycles,
        shares=fastest.shares,
    )


def _measured(workload: Workload, kernel: Kernel) -> EstimateAnswer:
    return EstimateAnswer(
        workload=answers.parsed_workload(workload),
        median_s=kernel.median_s,
        low_s=kernel.ci95_s[0],
        high_s=kernel.ci95_s[1],
        source="measured",
        kernel=kernel.id,
        disturbed=kernel.disturbed,
    )


def _predicted(workload: Workload, latency: Latency, learned: Learned) -> EstimateAnswer:
    near = None if latency.neighbour is None else learned.kernels[latency.neighbour]
    return EstimateAnswer(
        workload=answers.parsed_workload(workload),
        median_s=latency.median_s,
        low_s=latency.low_s,
        high_s=latency.high_s,
        source="predicted" if near is None else "neighbour",
        kernel=None if near is None else near[0],
        neighbour=None if near is None else near[1],
    )


def _too_few(target: Target, threads: int, count: int) -> str:
    flags = target_flag(target)
    if target.on_device:
        return (
            f"times on {target.name} are only known once they were measured; estimates are of "
            f"CPUs so far. Tune the workload: tuner tune SPEC{flags}"
        )
    with_threads = f"{threads} thread{'s' if threads > 1 else ''}"
    return (
        f"{count} kernels with {with_threads} were found by searches on {target.name}, and an "
        f"estimate learns from {LEAST} or more; tune some workloads there first, such as with "
        f"'tuner tune SPEC… --threads {threads}{flags}'"
    )
