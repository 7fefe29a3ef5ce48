"""Levels of isolation: what each asks of the kernel, what is refused with its way out,
what the filter is made of."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.isolation_levels import FULL, without
from tuner.errors import UsageError
from tuner.measure.sandbox import process_limit, seccomp
from tuner.measure.sandbox.fence import Fence, enter
from tuner.measure.sandbox.isolation import (
    DEFAULT_LEVEL,
    LEVELS,
    Isolation,
    check_level,
    isolation_report,
    resolve,
)
from tuner.measure.sandbox.seccomp import Filter, kernel_filter, library_filter
from tuner.measure.sandbox.support import Finding, Mechanism, State, Support, Way, probe_apart
from tuner.measure.sandbox.system_calls import (
    CHANGING,
    CONTROLLING,
    HARMLESS,
    MACHINES,
    OFFENCES,
    OPENING,
    call_names,
    numbers,
)


def by(mechanism: Mechanism, way: Way) -> Support:
    return replace(
        FULL, findings={**FULL.findings, mechanism: replace(FULL.findings[mechanism], way=way)}
    )


def test_each_level_holds_the_one_before() -> None:
    held = [set(resolve(level, FULL).findings) for level in LEVELS]
    assert held[0] == set() and held[0] < held[1] < held[2] == set(Mechanism)
    assert resolve(DEFAULT_LEVEL, FULL).name == "sealed"


def test_required_leaves_out_what_the_kernel_has_not_and_says_so() -> None:
    assert (
        resolve("required", without(Mechanism.FILES, State.MISSING)).name == "sealed without files"
    )


def test_what_is_refused_must_be_given_up_by_name() -> None:
    support = without(Mechanism.NETWORK, State.DENIED)
    with pytest.raises(
        UsageError, match=r"network: Operation not permitted.*'sealed without network'"
    ):
        resolve("required", support)
    given_up = resolve("sealed without network", support)
    assert given_up.name == "sealed without network" and Mechanism.NETWORK not in given_up.findings


def test_a_named_level_needs_all_of_it() -> None:
    with pytest.raises(UsageError, match="'sealed without files'"):
        resolve("sealed", without(Mechanism.FILES, State.MISSING))
    assert resolve("confined", without(Mechanism.FILES, State.MISSING)).name == "confined"


@pytest.mark.parametrize("mechanism", [Mechanism.PROCESSES, Mechanism.NETWORK])
def test_what_only_the_filter_does_goes_with_the_filter(mechanism: Mechanism) -> None:
    support = by(mechanism, Way.SECCOMP)
    assert resolve("sealed", support).way(mechanism) is Way.SECCOMP
    with pytest.raises(UsageError, match=f"'sealed without .*{mechanism}"):
        resolve("sealed without seccomp", support)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "fortress",
            "unknown isolation level 'fortress'; use required, one of process, confined, sealed",
        ),
        (
            "sealed without walls",
            "no mechanism 'walls'; it has seccomp, capabilities, processes, files, network",
        ),
        ("confined without files", "no mechanism 'files'"),
        ("process without seccomp", "none to leave out"),
    ],
)
def test_what_is_no_level_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_level(text)


def test_doctor_learns_each_mechanism_and_the_verdict() -> None:
    rows = isolation_report(support=FULL)
    assert [row.status for row in rows] == ["ok"] * 6 and rows[-1].detail == "candidates run sealed"
    lost = isolation_report(support=without(Mechanism.FILES, State.MISSING))
    assert lost[-1].status == "warning" and lost[-1].detail == "candidates run sealed without files"
    denied = isolation_report(support=without(Mechanism.FILES, State.DENIED))
    assert denied[-1].status == "failed" and "sealed without files" in denied[-1].detail


def test_the_running_kernel_is_tried_and_nothing_of_it_stays() -> None:
    before = (
        os.listdir("/proc/self/fd"),
        Path("/proc/self/status").read_text().split("Seccomp:")[1][:4],
    )
    support = probe_apart()
    assert set(support.findings) == set(Mechanism)
    assert all(finding.detail for finding in support.findings.values())
    assert all(
        bool(finding.way) == (finding.state is State.AVAILABLE)
        for finding in support.findings.values()
    )
    assert (
        os.listdir("/proc/self/fd"),
        Path("/proc/self/status").read_text().split("Seccomp:")[1][:4],
    ) == before


@pytest.mark.parametrize("machine", list(MACHINES))
def test_each_call_has_one_number_and_one_verdict(machine: str) -> None:
    tables = (HARMLESS, OPENING, CHANGING, CONTROLLING, OFFENCES)
    every = [name for table in tables for name in numbers(table, machine)]
    assert len(set(every)) == len(every)
    assert len({number for table in tables for number in numbers(table, machine).values()}) == len(
        every
    )
    assert len(call_names(machine)) >= len(every)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="reads the headers of x86_64")
def test_numbers_are_the_headers() -> None:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not header.exists():
        pytest.skip("no kernel headers")
    defined = dict(
        line.split()[1:3]
        for line in header.read_text().splitlines()
        if line.startswith("#define __NR_")
    )
    for number, name in call_names("x86_64").items():
        assert defined.get(f"__NR_{name}", str(number)) == str(number), name


def verdict(
    made: Filter, number: int, *arguments: int, audit: int = 0xC000003E, own: int = 77
) -> int:
    """What the program returns for a call: the few instructions it is made of, interpreted."""
    data = struct.pack("=iIQ6Q", number, audit, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    code = bytearray(made.code)
    for offset in made.own:
        struct.pack_into("=I", code, offset, own)
    counter, loaded = 0, 0
    while True:
        operation, true, false, k = struct.unpack_from("=HBBI", code, counter * 8)
        counter += 1
        if operation == 0x20:
            (loaded,) = struct.unpack_from("=I", data, k)
        elif operation == 0x06:
            return int(k)
        else:
            holds = {
                0x15: loaded == k,
                0x25: loaded > k,
                0x35: loaded >= k,
                0x45: bool(loaded & k),
            }[operation]
            counter += true if holds else false


ALLOW, NOTIFY, KILL, ERRNO = 0x7FFF0000, 0x7FC00000, 0x80000000, 0x00050000


def test_the_filter_decides_by_call_and_argument() -> None:
    made = kernel_filter("x86_64", listening=True, reported_bytes=5 << 32)
    numbers = {name: number for number, name in call_names("x86_64").items()}
    for name in HARMLESS:
        if name in numbers:
            assert verdict(made, numbers[name]) == ALLOW
    for name in OFFENCES:
        assert verdict(made, numbers[name]) == NOTIFY
    assert verdict(made, numbers["mmap"], 0, 5 << 32) == ALLOW
    assert (
        verdict(made, numbers["mmap"], 0, (5 << 32) + 1)
        == NOTIFY
        == verdict(made, numbers["mmap"], 0, 1 << 40)
    )
    assert verdict(made, numbers["mmap"], 0, (4 << 32) + 0xFFFFFFFF) == ALLOW
    assert verdict(made, numbers["clone"], 0x00010000 | 17) == ALLOW
    assert verdict(made, numbers["clone"], 17) == NOTIFY
    assert verdict(made, numbers["tgkill"], 77, 77) == ALLOW
    assert verdict(made, numbers["kill"], 76) == NOTIFY == verdict(made, numbers["kill"], 0)
    assert (
        verdict(made, numbers["prctl"], 15) == ALLOW and verdict(made, numbers["prctl"], 1) & ERRNO
    )
    assert (
        verdict(made, numbers["fcntl"], 3, 3) == ALLOW
        and verdict(made, numbers["fcntl"], 3, 8) & ERRNO
    )
    assert (
        verdict(made, numbers["prlimit64"], 77) == ALLOW
        and verdict(made, numbers["prlimit64"], 1) & ERRNO
    )
    assert verdict(made, numbers["openat"]) == NOTIFY
    assert (
        verdict(made, 435) == ERRNO | 38 == verdict(made, 9999)
    )  # clone3, and what no kernel of today has
    assert verdict(made, 0x40000000 | numbers["read"]) == ERRNO | 38  # x32
    assert verdict(made, numbers["read"], audit=0x40000003) == KILL  # i386's calls


def test_without_a_listener_offences_kill_and_libraries_are_only_refused() -> None:
    deaf, library = (
        kernel_filter("aarch64", listening=False, reported_bytes=None),
        library_filter("aarch64"),
    )
    numbers = {name: number for number, name in call_names("aarch64").items()}
    audit = MACHINES["aarch64"].audit
    assert (
        verdict(deaf, numbers["socket"], audit=audit) == KILL
        and verdict(deaf, numbers["openat"], audit=audit) == ALLOW
    )
    assert (
        verdict(library, numbers["socket"], audit=audit) & ERRNO
        and verdict(library, numbers["mkdirat"], audit=audit) == ALLOW
    )


def fenced(
    isolation: Isolation, scratch: Path, calls: Filter | None, probe: Callable[[], str]
) -> tuple[str, int]:
    """What `probe` says in a fenced child, and the child's status as waitpid gives it."""
    fence = Fence(
        isolation=isolation, cores=tuple(os.sched_getaffinity(0)), scratch=str(scratch),
        readable=("/usr", "/lib"),
        memory_bytes=None, cpu_s=10, tasks=64, environment={}, calls=calls,
    )  # fmt: skip
    reading, writing = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        try:
            pipe = enter(fence, parent=parent, pipe=writing, channel=None)
            os.write(pipe, probe().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        said = answers.read()
    return said, os.waitpid(pid, 0)[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user of the child's own")
def test_a_user_of_its_own_bounds_roots_threads_and_keeps_no_privilege(tmp_path: Path) -> None:
    findings = {
        Mechanism.PROCESSES: Finding(state=State.AVAILABLE, way=Way.USER, detail=""),
        Mechanism.CAPABILITIES: Finding(state=State.AVAILABLE, way=Way.CAPSET, detail=""),
    }
    isolation = Isolation(name="for a test", machine=os.uname().machine, findings=findings)

    def probe() -> str:
        Path(tmp_path, "mine").write_text("x")
        status = dict(
            line.split(":\t", 1)
            for line in Path("/proc/self/status").read_text().splitlines()
            if ":\t" in line
        )
        return (
            f"{os.getuid()} {status['CapEff']} "
            f"{resource.getrlimit(resource.RLIMIT_NPROC)[0]} {_dies_with_parent()}"
        )

    tmp_path.chmod(0o755)
    for folder in list(tmp_path.parents)[:3]:
        folder.chmod(0o755)
    said, status = fenced(isolation, tmp_path, None, probe)
    assert status == 0 and said.split() == [
        str(process_limit.own_user(os.getpid())),
        "0" * 16,
        "64",
        "9",
    ]


def _dies_with_parent() -> int:
    signal_number = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(signal_number), 0, 0, 0)
    return signal_number.value


@pytest.mark.skipif(os.uname().machine not in MACHINES, reason="no table of system calls")
def test_a_filter_without_a_listener_kills_by_sigsys(tmp_path: Path) -> None:
    machine = os.uname().machine
    isolation = Isolation(name="for a test", machine=machine, findings={})
    calls = seccomp.kernel_filter(machine, listening=False, reported_bytes=None)
    said, status = fenced(isolation, tmp_path, calls, lambda: str(socket.socket()))
    assert said == "" and os.WTERMSIG(status) == 31
    refused = fenced(isolation, tmp_path, seccomp.library_filter(machine), _refusal_of_a_socket)
    assert refused == ("EPERM", 0)


def _refusal_of_a_socket() -> str:
    try:
        socket.socket()
    except PermissionError:
        return "EPERM"
    return "a socket"
