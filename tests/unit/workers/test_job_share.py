"""Several jobs on one fleet: each gets its own results and answers, whatever happens to
the driver. The driver is a stand-in."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count, islice

import pytest

from tests.support.targets import ZEN5
from tuner.measure.assignment import Lane
from tuner.measure.outcome import Candidate, Conditions, Timed, Trial
from tuner.workers.fleet.handle import DriverLost, Fleet, FleetError, Inbound
from tuner.workers.fleet.job_share import SharedFleet
from tuner.workers.fleet.messages import (
    BuildFinalists,
    Built,
    Control,
    ControlReply,
    Finished,
    FleetPlan,
    Library,
    Limits,
    Measured,
    Problem,
    Submit,
)
from tuner.workers.fleet.notices import HostsPresent, WorkerLost
from tuner.workers.fleet.pipeline import Pipeline
from tuner.workers.fleet.policy import JobShare
from tuner.workers.fleet.ray_measurer import RayMeasurer
from tuner.workload.spec import parse_spec

PLAN = FleetPlan(
    lanes=(Lane(name="cpu:0", cores=(0,)),),
    builder_cores=(0,),
    alternates=False,
    limits=Limits(),
    storage="",
)
PROBLEM = Problem(workload=parse_spec("softmax:M=4,N=4"), target=ZEN5, threads=1)


class Driver(Fleet):
    """In this process and without Ray: the real pipeline, whose slots take no time."""

    def __init__(self) -> None:
        super().__init__(PLAN)
        self.messages: queue.SimpleQueue[Inbound] = queue.SimpleQueue()
        self.commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.pipeline = Pipeline(builders=["build:0"], runners=["cpu:0"])
        self.sent: list[tuple[str, int]] = []  # job and number of each candidate
        self.left: list[str] = []  # jobs that have left
        self.codes = count()
        self.restarts, self.holds, self.hopeless = 0, False, False

    def start(self) -> None:
        pass

    def wait_ready(
        self,
        *,
        timeout_s: float = 0.0,
        check: Callable[[], None] | None = None,
        on_waiting: Callable[[str], None] = lambda text: None,
    ) -> None:
        pass

    def submit(self, message: Submit) -> None:
        self.sent += [(message.job_share.job, candidate.number) for candidate in message.candidates]
        self.commands.put(
            lambda: self.pipeline.submit(
                message.problem.key, message.candidates, message.known_outcomes, message.job_share
            )
        )

    def abandon(self, job: str = "", *, leaves: bool = False) -> None:
        self.left += [job] if leaves else []
        self.commands.put(partial(self.pipeline.abandon, job, leaves=leaves))

    def send_control(self, problem: Problem, what: Control) -> int:
        self._controls += 1
        number = self._controls
        self.commands.put(
            lambda: self.messages.put(
                ControlReply(number=number, value=(), error=f"asked {number}")
            )
        )
        return number

    def lose(self) -> None:
        """The driver dies with all it knows."""
        self.pipeline = Pipeline(builders=["build:0"], runners=["cpu:0"])
        self.messages.put(DriverLost(0, "killed"))

    def restart(self, *, check: Callable[[], None] = lambda: None) -> None:
        time.sleep(0.05)  # what is sent meanwhile would be lost
        with suppress(queue.Empty):
            while True:
                self.commands.get_nowait()
        self.pipeline = Pipeline(builders=["build:0"], runners=["cpu:0"])
        self.restarts += 1
        if self.hopeless:
            raise FleetError("lost too often")

    def receive(self, timeout_s: float) -> Inbound | None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with suppress(queue.Empty):
                return self.messages.get_nowait()
            with suppress(queue.Empty):
                self.commands.get(timeout=0.005)()
            if not self.holds:
                self._work()
            reports, spans = self.pipeline.collect()
            if reports:
                return Finished(reports=tuple(reports), spans=tuple(spans))
        return None

    def _work(self) -> None:
        if build := self.pipeline.next_build():
            worker, problem, requests = build
            built = []
            for request in requests:
                library = Library(sha256=f"{problem} {next(self.codes)}", path="", symbol="k")
                built.append(
                    Built(number=request.number, result=library, started_s=0.0, ended_s=0.01)
                )
            self.pipeline.built(worker, built)
        if measurement := self.pipeline.next_measurement():
            worker, _, to_measure = measurement
            measured = []
            for candidate in to_measure:
                conditions = Conditions(lane=worker, isolation="process")
                timed = Timed(
                    samples_s=(1.0,),
                    max_rel_error=0.0,
                    conditions=conditions,
                    artifact=candidate.library.sha256,
                )
                measured.append(
                    Measured(number=candidate.number, outcome=timed, started_s=0.0, ended_s=0.01)
                )
            self.pipeline.measured(worker, measured)

    def close(self) -> None:
        pass


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def shared(driver: Driver) -> Iterator[SharedFleet]:
    fleet = SharedFleet(driver, on_hosts=lambda hosts: None)
    fleet.start()
    fleet.wait_ready(lambda: None)
    yield fleet
    fleet.close()


def tune(
    shared: SharedFleet,
    job: str,
    trials: int,
    *,
    meanwhile: Callable[[int], None] = lambda done: None,
) -> list[Trial]:
    """A job of the same problem as all others: only its id tells its candidates from theirs."""
    received: list[Trial] = []
    with shared.joined(JobShare(job=job)) as share:
        measurer = RayMeasurer(share, PROBLEM)
        numbers = iter(range(trials))

        def fill(free: int) -> None:
            measurer.submit(
                [Candidate(number=number, config={"job": job}) for number in islice(numbers, free)]
            )

        fill(4)
        for trial in measurer.results(timeout_s=10.0):
            received.append(trial)
            meanwhile(len(received))
            fill(1)
        measurer.close()
    return received


def assert_own(received: Sequence[Trial], job: str, trials: int) -> None:
    assert sorted(trial.number for trial in received) == list(range(trials))
    assert all(trial.config == {"job": job} for trial in received)


def test_each_job_gets_its_own_trials(shared: SharedFleet, driver: Driver) -> None:
    names = ["a", "b", "c"]
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda job: tune(shared, job, 30), names))
    for job, received in zip(names, results, strict=True):
        assert_own(received, job, 30)
    assert sorted(driver.left) == names


def test_a_lost_driver_costs_no_job_a_trial(shared: SharedFleet, driver: Driver) -> None:
    def lose(done: int) -> None:
        if done in (7, 19):
            driver.lose()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(tune, shared, "a", 40, meanwhile=lose)
        second = pool.submit(tune, shared, "b", 40)
        assert_own(first.result(timeout=60), "a", 40)
        assert_own(second.result(timeout=60), "b", 40)
    assert driver.restarts == 2


def test_every_job_is_told_when_the_fleet_is_beyond_help(
    shared: SharedFleet, driver: Driver
) -> None:
    driver.hopeless = driver.holds = True
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(tune, shared, job, 5) for job in ("a", "b")]
        while len(driver.sent) < 8:
            time.sleep(0.01)
        driver.lose()
        for future in waiting:
            with pytest.raises(FleetError, match="lost too often"):
                future.result(timeout=30)
    assert shared.broken is not None
    with pytest.raises(FleetError, match="lost too often"):
        shared.wait_ready(lambda: None)


def test_answers_reach_who_asked(shared: SharedFleet) -> None:
    def request_control(job: str) -> list[str | None]:
        with shared.joined(JobShare(job=job)) as share:
            return [
                share.request_control(PROBLEM, BuildFinalists(requests=()), timeout_s=10).error
                for _ in range(5)
            ]

    with ThreadPoolExecutor(3) as pool:
        replies = [
            answer for answers in pool.map(request_control, ["a", "b", "c"]) for answer in answers
        ]
    assert sorted(str(answer) for answer in replies) == sorted(
        f"asked {number}" for number in range(1, 16)
    )


def test_a_question_to_a_lost_driver_is_answered_with_the_loss(
    shared: SharedFleet, driver: Driver
) -> None:
    with shared.joined(JobShare(job="a")) as share:
        driver.lose()
        while not share.lost:
            time.sleep(0.005)
        assert (
            share.request_control(PROBLEM, BuildFinalists(requests=()), timeout_s=10).error
            == "killed"
        )
        assert (
            share.request_control(PROBLEM, BuildFinalists(requests=()), timeout_s=10).error
            == "asked 1"
        )


def test_notices_reach_every_job(shared: SharedFleet, driver: Driver) -> None:
    with shared.joined(JobShare(job="a")) as a, shared.joined(JobShare(job="b")) as b:
        driver.messages.put(WorkerLost(message="cpu:0: killed"))
        for share in (a, b):
            notice = share.receive(5.0)
            assert isinstance(notice, WorkerLost) and notice.message == "cpu:0: killed"


def test_what_is_left_to_do_is_told_with_each_submission(
    shared: SharedFleet, driver: Driver
) -> None:
    with shared.joined(JobShare(job="a")) as share:
        share.set_demand(trials_left=10, seconds_left=100.0, memory_bytes=64)
        share.submit(Submit(problem=PROBLEM, candidates=(Candidate(number=0),), known_outcomes={}))
        message = share.receive(5.0)
        assert isinstance(message, Finished)
        assert share.job_share.trials_left == 9 and share.job_share.memory_bytes == 64
        left = share.job_share.seconds_left
        assert left is not None and 95.0 < left <= 100.0


def test_jobs_leave_while_others_go_on(shared: SharedFleet, driver: Driver) -> None:
    """A job that is stopped in the middle takes nothing of another along."""
    gone = threading.Event()

    def leave() -> None:
        with shared.joined(JobShare(job="short")) as share:
            measurer = RayMeasurer(share, PROBLEM)
            measurer.submit(
                [Candidate(number=number, config={"job": "short"}) for number in range(20)]
            )
            next(measurer.results(timeout_s=5.0))
            measurer.close()
        gone.set()

    with ThreadPoolExecutor(2) as pool:
        other = pool.submit(tune, shared, "long", 60)
        pool.submit(leave).result(timeout=30)
        assert_own(other.result(timeout=60), "long", 60)
    assert gone.is_set() and "short" in driver.left


def test_whatever_ends_the_listener_the_jobs_are_told(driver: Driver) -> None:
    def fails(hosts: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    fleet = SharedFleet(driver, on_hosts=fails)
    fleet.start()
    fleet.wait_ready(lambda: None)
    with fleet.joined(JobShare(job="a")) as share:
        driver.messages.put(HostsPresent(message="", hosts=()))
        with pytest.raises(FleetError, match="ZeroDivisionError: a fault of ours"):
            while True:
                share.receive(5.0)
    fleet.close()


def test_a_closed_fleet_is_told_to_who_still_waits(shared: SharedFleet) -> None:
    with shared.joined(JobShare(job="a")) as share:
        shared.close()
        with pytest.raises(FleetError, match="closed"):
            share.receive(5.0)
