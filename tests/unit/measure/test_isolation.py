"""Hostile kernels, on real libraries: each is named within its timeout and a second,
the next trial is none the worse, and nothing escapes: no file, no process, no
connection, no secret.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from tests.support.hostile_kernels import addition, compile_attack
from tuner.measure.assignment import Assignment, Lane, Request
from tuner.measure.outcome import Failed, FailureKind, Outcome, Timed
from tuner.measure.runner import RunnerProcess
from tuner.measure.sandbox.support import Mechanism, State, Support, Way, probe_apart

TIMEOUT_S, PATIENT_S = (
    1.0,
    20.0,
)  # of attacks that never end, and of those that end by themselves, however slow the machine
ENDLESS = ("fork_bomb", "session_bomb", "thread_bomb", "keeps_signals")
SECRET = "a token of 0600"
needs_all = pytest.mark.usefixtures("all_mechanisms")
# Root's processes are bounded, and found again, by a control group alone.
needs_group = pytest.mark.usefixtures("control_group")

Attack = Callable[[str], Request]


@dataclass(frozen=True, kw_only=True)
class Prey:
    """What the attacks are after."""

    home: Path
    listener: socket.socket

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def check_untouched(self) -> None:
        assert sorted(path.name for path in self.home.iterdir()) == ["token"]
        assert (self.home / "token").read_text() == SECRET
        with pytest.raises(BlockingIOError):
            self.listener.accept()


@pytest.fixture(scope="module")
def support() -> Support:
    return probe_apart()


@pytest.fixture(scope="module")
def all_mechanisms(support: Support) -> None:
    complete = all(finding.state is State.AVAILABLE for finding in support.findings.values())
    if not (complete and support.findings[Mechanism.SECCOMP].way is Way.LISTENER):
        pytest.skip(f"this kernel lacks some of the isolation: {support.findings}")


@pytest.fixture(scope="module")
def control_group(support: Support) -> None:
    if support.findings[Mechanism.PROCESSES].way is not Way.CGROUP:
        pytest.skip("no control group of a runner can be made here")


@pytest.fixture(scope="module")
def prey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prey]:
    home = tmp_path_factory.mktemp("home")
    (home / "token").write_text(SECRET)
    (home / "token").chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield Prey(home=home, listener=listener)


@pytest.fixture(scope="module")
def attack(tmp_path_factory: pytest.TempPathFactory, prey: Prey) -> Attack:
    folder, made = tmp_path_factory.mktemp("attacks"), dict[str, str]()

    def request(name: str) -> Request:
        if name not in made:
            made[name] = str(compile_attack(name, folder, home=prey.home, port=prey.port))
        return Request(
            name=name,
            library=made[name],
            symbol="kernel",
            timeout_s=TIMEOUT_S if name in ENDLESS else PATIENT_S,
            promising_s=0.0,  # no timing waits for a core that other tests slow down
        )

    return request


@pytest.fixture(scope="module")
def runner_at(lane: Lane) -> Iterator[Callable[[str], RunnerProcess]]:
    """A prepared runner of a level, made when first asked for."""
    made: dict[str, RunnerProcess] = {}

    def get(level: str) -> RunnerProcess:
        if level not in made:
            made[level] = RunnerProcess()
            made[level].prepare(Assignment(workload=addition(), lane=lane, isolation=level))
        return made[level]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNER_TEST_TOKEN", SECRET)
        yield get
    for process in made.values():
        process.close()


def measure(runner: RunnerProcess, request: Request) -> Outcome:
    """The outcome, which left no process. One that is late would be infrastructure."""
    before, outcome = runner.pid, runner.measure(request)
    assert runner.pid == before
    assert psutil.Process(runner.pid).children(recursive=True) == []
    assert strays(request) == []
    return outcome


def strays(request: Request) -> list[int]:
    """Processes that have the attack's library mapped, wherever they hang in the tree."""
    pids = []
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            if request.library and request.library in maps.read_text():
                pids.append(int(maps.parent.name))
    return pids


CRASH, MEMORY, LATE = FailureKind.RUN_CRASH, FailureKind.OUT_OF_MEMORY, FailureKind.RUN_TIMEOUT
ENDED = [
    (
        "writes_home",
        CRASH,
        r"tried to write .*/owned, which isolation refuses, while checking normal inputs",
    ),
    ("writes_by_dots", CRASH, "tried to write .*/owned"),
    ("appends_token", CRASH, "tried to write .*/token"),
    ("reads_token", CRASH, "tried to read .*/token"),
    ("reads_parents_environment", CRASH, r"tried to read /proc/\d+/environ"),
    ("reads_parents_memory", CRASH, r"tried to read /proc/\d+/mem"),
    ("copies_parents_memory", CRASH, "called process_vm_readv"),
    ("traces_parent", CRASH, "called ptrace"),
    ("kills_parent", CRASH, r"called kill for process \d+"),
    ("signals_all", CRASH, "called kill for process -1"),
    ("opens_socket", CRASH, "called socket"),
    ("opens_unix_socket", CRASH, "called socket"),
    ("fork_bomb", CRASH, "called clone for a new process"),
    ("session_bomb", CRASH, "called clone for a new process"),
    ("runs_program", CRASH, "called (vfork|clone for a new process|fork)"),
    ("thread_bomb", LATE, "no result within 1 s.*refused more processes or threads than its limit"),
    ("thread_bomb_gives_up", CRASH, "SIGABRT.*refused more processes or threads than its limit"),
    ("leaves_namespaces", CRASH, "called unshare"),
    ("mounts", CRASH, "called mount"),
    ("rings", CRASH, "called io_uring_setup"),
    ("hides_memory", CRASH, "called memfd_create"),
    ("fills_file", CRASH, "SIGXFSZ: a file grew past"),
    ("fills_folder", CRASH, "opened more than 16 files for writing"),
    (
        "silently_greedy",
        MEMORY,
        r"SIGSEGV.* asking for 687\d+ bytes of memory, more than its limit",
    ),
    ("leaks", MEMORY, "SIGSEGV with its memory used up"),
    ("leaks_mappings", MEMORY, "SIGSEGV with its memory used up"),
    (
        "asks_for_halves",
        MEMORY,
        r"SIGSEGV.* asking for 536\d+ bytes of memory, more than its limit",
    ),
    ("keeps_signals", LATE, "no result within 1 s"),
]
IN_VAIN = [
    "removes_token", "links_token", "reads_token_variable", "signals_parent_by_file",
    "forgets_parent", "moves_parent",
    "limits_parent", "clones_by_number",
]  # fmt: skip


@needs_all
@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [pytest.param(*row, marks=[pytest.mark.slow] if row[1] is LATE else []) for row in ENDED],
)
def test_an_attack_ends_the_trial_by_name(
    runner_at: Callable[[str], RunnerProcess],
    attack: Attack,
    prey: Prey,
    name: str,
    kind: FailureKind,
    message: str,
) -> None:
    runner = runner_at("required")
    outcome = measure(runner, attack(name))
    assert isinstance(outcome, Failed) and outcome.kind is kind, outcome
    assert re.search(message, outcome.message, re.DOTALL), outcome.message
    prey.check_untouched()
    assert isinstance(measure(runner, attack("writes_scratch")), Timed)


@needs_all
@pytest.mark.parametrize("name", IN_VAIN)
def test_what_is_refused_in_silence_gains_nothing(
    runner_at: Callable[[str], RunnerProcess], attack: Attack, prey: Prey, name: str
) -> None:
    outcome = measure(runner_at("required"), attack(name))
    assert isinstance(outcome, Timed) and outcome.conditions.isolation == "sealed", outcome
    prey.check_untouched()


@needs_all
@pytest.mark.parametrize("name", ["few_threads", "writes_scratch"])
def test_what_kernels_need_is_allowed(
    runner_at: Callable[[str], RunnerProcess], attack: Attack, name: str
) -> None:
    assert isinstance(measure(runner_at("required"), attack(name)), Timed)


REACHING = [
    "writes_home",
    "appends_token",
    "removes_token",
    "links_token",
    "reads_token",
    "opens_socket",
    "kills_parent",
]
PRYING = [
    "reads_parents_environment",
    "reads_parents_memory",
    "copies_parents_memory",
    "traces_parent",
]


@needs_all
@pytest.mark.parametrize(
    ("level", "names"),
    [
        # Each mechanism holds without its neighbour: Landlock, namespace and
        # capabilities without the filter, and the reverse.
        ("sealed without seccomp", [*REACHING, *PRYING, "runs_program"]),
        (
            "sealed without files, network",
            ["writes_home", "reads_token", "opens_socket", "kills_parent", *PRYING, "fork_bomb"],
        ),
        ("confined", ["writes_home", "reads_token", "opens_socket", "kills_parent", *PRYING]),
    ],
)
def test_nothing_escapes_where_a_mechanism_is_left_out(
    runner_at: Callable[[str], RunnerProcess],
    attack: Attack,
    prey: Prey,
    level: str,
    names: list[str],
) -> None:
    runner = runner_at(level)
    for name in names:
        outcome = measure(runner, attack(name))
        assert isinstance(outcome, Timed) or outcome.kind is CRASH, (name, outcome)
        prey.check_untouched()
    good = measure(runner, attack("writes_scratch"))
    assert isinstance(good, Timed) and good.conditions.isolation == level


# the bomb takes a processor for itself until it is ended, within the timeout and a
# second
@pytest.mark.serial
@needs_group
@pytest.mark.parametrize("level", ["process", "sealed without seccomp"])
@pytest.mark.parametrize("name", ["fork_bomb", "session_bomb", "thread_bomb"])
def test_a_bomb_is_bounded_by_the_limit_alone(
    runner_at: Callable[[str], RunnerProcess], attack: Attack, prey: Prey, level: str, name: str
) -> None:
    runner = runner_at(level)
    outcome = measure(runner, attack(name))
    assert isinstance(outcome, Failed) and outcome.kind is LATE, outcome
    assert "more processes or threads than its limit" in outcome.message
    assert isinstance(measure(runner, attack("writes_scratch")), Timed)


def test_the_level_is_recorded_as_it_is_in_force(
    runner_at: Callable[[str], RunnerProcess], attack: Attack
) -> None:
    assert runner_at("process").isolation == "process"
    outcome = measure(runner_at("process"), attack("few_threads"))
    assert isinstance(outcome, Timed) and outcome.conditions.isolation == "process"


def test_the_scratch_folder_and_the_group_go_with_the_runner(lane: Lane, attack: Attack) -> None:
    with RunnerProcess() as process:
        process.prepare(Assignment(workload=addition(), lane=lane))
        pid = process.pid
        assert isinstance(process.measure(replace(attack("few_threads"), timeout_s=5.0)), Timed)
    assert list(Path("/sys/fs/cgroup").glob(f"**/tuner-runner-{pid}")) == []
    assert pid is not None and not psutil.pid_exists(pid)


@needs_group
def test_a_group_of_a_killed_runner_is_swept(lane: Lane) -> None:
    with RunnerProcess() as process:
        process.prepare(Assignment(workload=addition(), lane=lane))
        lost = process.pid
        assert lost is not None
        os.kill(lost, 9)
        os.waitid(os.P_PID, lost, os.WEXITED | os.WNOWAIT)
        (left,) = Path("/sys/fs/cgroup").glob(f"**/tuner-runner-{lost}")
    assert not left.exists()
    left.mkdir()  # as where its owner was killed, too
    with RunnerProcess() as process:
        process.prepare(Assignment(workload=addition(), lane=lane))
    assert not left.exists()


@pytest.mark.serial
@needs_group
def test_a_bomb_does_not_outlive_a_killed_runner(lane: Lane, attack: Attack) -> None:
    with RunnerProcess() as process:
        process.prepare(Assignment(workload=addition(), lane=lane, isolation="process"))
        assert process.pid is not None
        killer = threading.Timer(0.5, os.kill, (process.pid, 9))
        killer.start()
        outcome = process.measure(attack("session_bomb"))
        killer.join()
        assert isinstance(outcome, Failed) and outcome.kind is FailureKind.INFRASTRUCTURE, outcome
        assert strays(attack("session_bomb")) == []
        assert isinstance(process.measure(attack("writes_scratch")), Timed)
