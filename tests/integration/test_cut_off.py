"""Two workers with addresses of their own, each in a network namespace; one is cut off
in the middle of a job and comes back."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.cluster import running_head, wait_until_joined, worker
from tests.support.fleet_job import QUICK, open_in, queue_job
from tests.support.fleet_records import assert_complete, recorded
from tuner.db import jobs, trials
from tuner.measure.outcome import Timed
from tuner.tuning import TrialRecorded
from tuner.workers.fleet.pipeline import MAX_BATCH
from tuner.workers.jobs.orchestrator import OrchestratorOptions, run_job
from tuner.workers.jobs.progress import Progress, WorkerNotice

BUDGET = 60
CUT_S = 20.0  # longer than a node may be silent: three checks of two seconds, a second apart
BRIDGE, NET = "tuner-br", "198.18.77"  # of the addresses set aside for tests of networks
HERE = f"{NET}.1"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Namespace:
    """A machine's network: one address, one cable to everybody else."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.address, self._cable = (
            f"tuner-{name}",
            f"{NET}.{number}",
            f"tuner-v{number}",
        )

    def __enter__(self) -> Namespace:
        ip("netns", "add", self.name)
        ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("link", "set", self._cable, "master", BRIDGE, "up")
        ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for link in ("eth0", "lo"):
            ip("-n", self.name, "link", "set", link, "up")
        ip("-n", self.name, "route", "add", "default", "via", HERE)
        return self

    def __exit__(self, *exception: object) -> None:
        ip("netns", "del", self.name)

    def plug(self, there: bool) -> None:
        ip("link", "set", self._cable, "up" if there else "down")


@pytest.fixture
def bridge() -> Iterator[None]:
    for words in (
        ("link", "del", BRIDGE),
        ("netns", "del", "tuner-one"),
        ("netns", "del", "tuner-two"),
    ):
        with suppress(OSError, subprocess.CalledProcessError):  # of a run that was killed
            ip(*words)
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces cannot be made here: {error}")
    try:
        ip("addr", "add", f"{HERE}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        yield
    finally:
        ip("link", "del", BRIDGE)


@pytest.mark.long
@pytest.mark.xdist_group("fleet")
@pytest.mark.timeout(900)
def test_a_cut_off_machine_costs_what_it_held_and_comes_back(
    bridge: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database = open_in(tmp_path)
    seen: list[str] = []  # lanes, in the order of their trials
    notices: list[str] = []
    cut_at: int | None = None
    with (
        Namespace("one", 2) as first,
        Namespace("two", 3) as two,
        running_head(monkeypatch, HERE) as head,
    ):

        def observe(progress: Progress) -> None:
            nonlocal cut_at
            if isinstance(progress, WorkerNotice):
                notices.append(progress.message)
            if isinstance(progress, TrialRecorded):
                seen.append(
                    str(getattr(getattr(progress.trial.outcome, "conditions", None), "lane", ""))
                )
                if (
                    cut_at is None
                    and len(seen) >= BUDGET // 4
                    and any(lane.startswith("two/") for lane in seen)
                ):
                    cut_at = len(seen)
                    two.plug(False)
                    time.sleep(CUT_S)
                    two.plug(True)  # from now on its node can be told that it was given up
                    wait_until_joined(logs[1], processes[1], times=2)

        logs = [tmp_path / f"{name}.log" for name in ("one", "two")]
        processes = [
            worker(
                head.address,
                log.stem,
                log,
                prefix=("ip", "netns", "exec", space.name),
                node_ip=space.address,
            )
            for log, space in zip(logs, (first, two), strict=True)
        ]
        try:
            for log, process in zip(logs, processes, strict=True):
                wait_until_joined(log, process)
            job_id = queue_job(database, ["matmul:M=48,N=40,K=32"], trials=BUDGET)
            options = OrchestratorOptions(
                artifacts=tmp_path / "artifacts", limits=QUICK, address=head.address
            )
            report = run_job(database, job_id, options, observer=observe)
            assert report.job.state == jobs.SUCCEEDED, report.job.error
            recorded_trials = recorded(database, job_id)
            assert_complete(recorded_trials, BUDGET)
            assert all(isinstance(trial.outcome, Timed) for trial in recorded_trials)
            with database.read() as session:
                again = [
                    stored
                    for stored in trials.stored_of_task(session, job_id)
                    if stored.attempts > 1
                ]
            assert len(again) <= 3 * MAX_BATCH, (
                "more was measured again than two builders' batches and a lane's can hold"
            )
            assert cut_at is not None and any(lane.startswith("two/") for lane in seen[cut_at:]), (
                seen[cut_at:]
            )
        finally:
            for process in processes:
                process.send_signal(signal.SIGTERM)
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=60)
            database.close()
