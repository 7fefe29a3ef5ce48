"""A device's runner, by the agent of this machine: each failure of a candidate is named in
time, the next is none the worse, nothing escapes, and a device that vanishes comes back."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.support.agents import native_agent
from tests.support.depth import thinned
from tests.support.hostile_kernels import COMMON_FAILURES, addition, compile_attack
from tuner.errors import UsageError
from tuner.measure.assignment import Assignment, Device, Lane, Request
from tuner.measure.device.connection import Connection, DeviceError
from tuner.measure.device.protocol import FenceBit
from tuner.measure.device.runner import DeviceRunner
from tuner.measure.outcome import Failed, FailureKind, Timed

Make = Callable[..., Request]
TIMEOUT_S = 2.0

FAILURES = {
    behaviour: (kind, message)
    for behaviour, kind, message in (
        *COMMON_FAILURES,
        ("abort", FailureKind.RUN_CRASH, "SIGABRT while checking normal inputs"),
        ("endless", FailureKind.RUN_TIMEOUT, "stopped after 0.8 s while checking normal inputs"),
        ("stubborn", FailureKind.RUN_TIMEOUT, "stopped after 0.8 s"),
    )
}
QUICK = ("wrong", "right_once", "far_overrun", "segfault", "endless")  # of each kind and message
# What ends the trial by its system call, and what is only refused. The first of both are quick
# tests: of processes, programs, the network and files.
ENDED_BY_THE_FENCE = (
    "fork_bomb", "runs_program", "opens_socket", "kills_parent", "traces_parent",
    "copies_parents_memory", "opens_unix_socket", "session_bomb", "leaves_namespaces", "mounts",
    "rings", "hides_memory", "removes_token", "signals_all",
)  # fmt: skip
REFUSED = (
    "writes_home", "reads_token", "reads_parents_memory", "few_threads", "writes_by_dots",
    "appends_token", "reads_token_variable", "reads_parents_environment", "moves_parent",
    "limits_parent", "forgets_parent", "clones_by_number",
)  # fmt: skip
SECRET = "a token of 0600"


@pytest.fixture(scope="module")
def device() -> Device:
    return native_agent()


@pytest.fixture(scope="module")
def assignment(device: Device) -> Assignment:
    return Assignment(
        workload=addition(),
        lane=Lane(name="device:here", cores=(0,), device=device),
        memory_bytes=2 << 30,
    )


@pytest.fixture(scope="module")
def runner(assignment: Assignment, device: Device) -> Iterator[DeviceRunner]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNER_TEST_TOKEN", SECRET)
        with DeviceRunner(device) as started:
            started.prepare(assignment)
            yield started


@pytest.fixture(scope="module")
def prey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, socket.socket]]:
    """A folder with a secret, and a port, that attacks are after."""
    home = tmp_path_factory.mktemp("home")
    (home / "token").write_text(SECRET)
    (home / "token").chmod(0o644)  # by its permissions anybody may read it
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield home, listener


@pytest.mark.parametrize(
    "behaviour",
    thinned(sorted(FAILURES, key=lambda name: name not in QUICK), len(QUICK), pytest.mark.slow),
)
def test_each_failure_is_named_in_time_and_the_next_is_unaffected(
    runner: DeviceRunner, request_for: Make, behaviour: str
) -> None:
    kind, message = FAILURES[behaviour]
    request, connection = request_for(behaviour), runner.start()
    outcome = runner.measure(request)
    assert isinstance(outcome, Failed) and outcome.kind is kind, outcome
    assert re.search(message, outcome.message, re.DOTALL), outcome.message
    assert isinstance(runner.measure(request_for("good")), Timed)
    assert runner.start() is connection


def test_a_candidate_that_has_ended_is_not_waited_for(
    runner: DeviceRunner, request_for: Make
) -> None:
    """While anything of it may be left, its agent looks and sleeps a thousand times a second."""
    request, agent = request_for("exit"), psutil.Process(runner.start()._process.pid)
    before = agent.num_ctx_switches().voluntary
    assert isinstance(runner.measure(request), Failed)
    assert agent.num_ctx_switches().voluntary - before < 500


def test_memory_has_a_limit(runner: DeviceRunner, request_for: Make) -> None:
    """Of an allocation that fails the kernel itself says so; what it then touches ends it."""
    outcome = runner.measure(request_for("greedy"))
    assert isinstance(outcome, Failed) and outcome.kind is FailureKind.RUN_CRASH
    assert "SIGABRT" in outcome.message


def test_a_good_kernel_is_timed_with_its_conditions(
    runner: DeviceRunner, request_for: Make
) -> None:
    outcome = runner.measure(request_for("good"))
    assert isinstance(outcome, Timed), outcome
    assert len(outcome.samples_s) >= 3 and all(0 < sample < 1e-3 for sample in outcome.samples_s)
    assert 0 <= outcome.max_rel_error < 1e-6 and len(outcome.artifact) == 64
    assert outcome.conditions.lane == "device:here"
    assert outcome.conditions.isolation.startswith("sealed without")
    assert runner.measure(request_for("good")).conditions.pace is not None  # type: ignore[union-attr]


def test_promotion_checks_more_inputs(runner: DeviceRunner, request_for: Make) -> None:
    runner.prepare_promotion()
    assert isinstance(runner.measure(request_for("good", verification="promotion")), Timed)
    wrong = runner.measure(request_for("wrong", verification="promotion"))
    assert isinstance(wrong, Failed) and "on large inputs" in wrong.message
    later = runner.measure(request_for("wrong_later", verification="timed"))
    assert isinstance(later, Failed) and "(timed)" in later.message


def test_a_hopeless_candidate_is_abandoned_and_a_long_call_is_sample_enough(
    runner: DeviceRunner, request_for: Make
) -> None:
    hopeless = runner.measure(request_for("slow", abandon_above_s=0.01))
    assert isinstance(hopeless, Timed) and hopeless.conditions.abandoned
    long = runner.measure(request_for("long", timeout_s=10.0))
    assert isinstance(long, Timed) and len(long.samples_s) == 1 and long.median_s >= 1.1


@pytest.mark.parametrize(
    "name",
    [*thinned(ENDED_BY_THE_FENCE, 4, pytest.mark.slow), *thinned(REFUSED, 4, pytest.mark.slow)],
)
def test_nothing_escapes(
    runner: DeviceRunner, prey: tuple[Path, socket.socket], tmp_path: Path, name: str
) -> None:
    facts = runner.start().facts
    if facts.fences != FenceBit.CALLS | FenceBit.FILES | FenceBit.PRIVILEGES:
        pytest.skip(f"this kernel lacks some of the fences: {facts.fences}")
    home, listener = prey
    library = compile_attack(name, tmp_path, home=home, port=listener.getsockname()[1])
    request = Request(
        name=name, library=str(library), symbol="kernel", timeout_s=TIMEOUT_S, promising_s=0.0
    )
    outcome = runner.measure(request)
    if name in REFUSED:
        assert isinstance(outcome, Timed), outcome
    else:
        assert isinstance(outcome, Failed) and "SIGSYS" in outcome.message, outcome
    assert [path.name for path in home.iterdir()] == ["token"]
    assert (home / "token").read_text() == SECRET
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_a_device_that_vanishes_is_infrastructure_and_comes_back(
    assignment: Assignment, device: Device, request_for: Make
) -> None:
    with DeviceRunner(device) as runner:
        runner.prepare(assignment)
        agent = psutil.Process(runner.start()._process.pid)
        candidates: list[psutil.Process] = []

        def pull_the_plug() -> None:
            while not candidates or candidates[0].cpu_times().user < 0.2:  # in its endless loop
                candidates[:] = agent.children()
                time.sleep(0.01)
            agent.kill()

        thread = threading.Thread(target=pull_the_plug)
        thread.start()
        lost = runner.measure(request_for("endless", timeout_s=20.0))
        thread.join()
        assert isinstance(lost, Failed) and lost.kind is FailureKind.INFRASTRUCTURE
        assert "it ended" in lost.message
        with suppress(psutil.NoSuchProcess):
            candidates[0].wait(5)  # it dies with its agent
        assert isinstance(runner.measure(request_for("good")), Timed)


def test_a_device_that_stays_away_is_infrastructure(
    assignment: Assignment, device: Device, request_for: Make, tmp_path: Path
) -> None:
    """It is asked for again until patience ends."""
    plug = tmp_path / "agent"
    plug.symlink_to(device.command[0])
    away = Device(command=("./agent",), folder=str(tmp_path))
    with DeviceRunner(away, patience_s=0.3) as runner:
        runner.prepare(replace(assignment, lane=Lane(name="d", cores=(0,), device=away)))
        runner.start().close()
        plug.unlink()
        started = time.monotonic()
        lost = runner.measure(request_for("good"))
        assert isinstance(lost, Failed) and lost.kind is FailureKind.INFRASTRUCTURE
        assert "cannot be started" in lost.message and time.monotonic() - started >= 0.3
        plug.symlink_to(device.command[0])
        assert isinstance(runner.measure(request_for("good")), Timed)


def test_the_agent_ends_with_its_host(device: Device) -> None:
    connection = Connection(device)
    agent = psutil.Process(connection._process.pid)
    connection._to.close()  # as when the link breaks
    assert agent.wait(5) == 0
    connection.close()


def test_what_no_device_does_is_refused(
    assignment: Assignment, runner: DeviceRunner, request_for: Make
) -> None:
    with pytest.raises(UsageError, match=r"threads does not fit .* may use"):
        runner.prepare(replace(assignment, threads=1024))
    with pytest.raises(UsageError, match="isolation 'sealed' cannot be had"):
        runner.prepare(replace(assignment, isolation="sealed"))
    with pytest.raises(UsageError, match="only kernels"):
        runner.measure(Request(name="numpy", rival="numpy"))
    with pytest.raises(DeviceError, match="cannot be started"):
        Connection(Device(command=("/nowhere/tuner-agent",)))
    with pytest.raises(DeviceError, match="it ended; it wrote: ssh: no such host"):
        Connection(Device(command=("sh", "-c", "echo ssh: no such host >&2; exit 255")))
    runner.prepare(assignment)
    assert isinstance(runner.measure(request_for("good")), Timed)
