"""Supervision of a forked child: wait with a deadline, kill, name the failure.

A child that ends by itself with a result is believed. Every other end is classified by
who ended the child and what it said last. All that it left behind is killed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.measure.outcome import Failed, FailureKind
from tuner.measure.sandbox.confinement import Confinement
from tuner.measure.sandbox.fence import OUTPUT_LIMIT_BYTES
from tuner.measure.sandbox.refusals import Refusals

RESULT_LIMIT_BYTES = 4 << 20
QUOTED_BYTES = 2000  # of the child's own output in a message
# After so long, the child is waited for on other cores than its own; few children that end
# by themselves take longer. Beside a storm of processes on its cores, this process would get
# some 4 ms in 300, needs 20, and would itself be given up before it is done.
ASIDE_S = 0.5
VMSTAT = Path("/proc/vmstat")
_OUT_OF_MEMORY_TEXTS = ("bad_alloc", "MemoryError", "Cannot allocate memory", "out of memory")


class OwnerGone(Exception):
    """Nobody waits for results any more: the driver closed or died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a child ended."""

    stage: str  # what the child said last that it was doing
    result: dict[str, Any]  # empty when it sent none
    status: int  # as waitpid gives it
    timed_out: bool
    flooded: bool  # it sent more than any result holds
    refused: str | None = None  # what it was ended for, in words
    memory_bytes: int = 0  # the largest mapping it was refused, 0 for none known
    task_limit_hit: bool = False  # it was refused processes or threads for their limit
    oom_killed: bool = False  # the kernel killed processes for want of memory while it ran


def supervise(
    pid: int,
    result: int,
    timeout_s: float,
    *,
    owner: int,
    confinement: Confinement,
    refusals: Refusals | None = None,
) -> End:
    """Wait for the child's end, at most `timeout_s`, then kill all its descendants.

    `result` is the reading end of its pipe. A hang-up on `owner` raises OwnerGone after
    the killing.
    """
    memory_kills, lane = oom_kills(), os.sched_getaffinity(0)
    watch = _Watch(pid, result, owner, refusals)
    try:
        watch.wait(
            timeout_s, leave_lane=lambda: os.sched_setaffinity(0, confinement.home - lane or lane)
        )
    finally:
        task_limit_hit = confinement.limit_hit()  # asked before killing lowers the limit
        status = _end(pid, confinement)
        watch.close()
        os.sched_setaffinity(0, lane)
    watch.drain()
    if watch.owner_gone:
        raise OwnerGone
    stage, document = _parse(watch.data)
    return End(
        stage=stage,
        result=document,
        status=status,
        timed_out=watch.timed_out,
        flooded=watch.flooded,
        refused=watch.refused,
        memory_bytes=0 if refusals is None else refusals.memory_bytes,
        task_limit_hit=task_limit_hit,
        oom_killed=oom_kills() > memory_kills,
    )


class _Watch:
    """Watches a child: its result pipe, its end, its refused calls, and the owner."""

    def __init__(self, pid: int, result: int, owner: int, refusals: Refusals | None) -> None:
        self.data = bytearray()  # what the child sent
        self.timed_out = False
        self.owner_gone = False
        self.refused: str | None = None  # what the child must be ended for, in words
        self._result, self._owner, self._refusals = result, owner, refusals
        self._ended = os.pidfd_open(pid)
        self._poll = select.poll()
        self._poll.register(result, select.POLLIN)
        self._poll.register(self._ended, select.POLLIN)
        self._poll.register(owner, 0)  # hang-ups alone: the next command may wait
        os.set_blocking(result, False)
        if refusals is not None:
            self._poll.register(refusals.descriptor, select.POLLIN)

    @property
    def flooded(self) -> bool:
        """Whether the child sent more than any result holds."""
        return len(self.data) > RESULT_LIMIT_BYTES

    def wait(self, timeout_s: float, *, leave_lane: Callable[[], None]) -> None:
        """Wait until the child has ended or must be ended, at most `timeout_s`.

        `leave_lane` moves this process to other cores; it is called once, when nothing has
        come for `ASIDE_S`.
        """
        deadline = time.monotonic() + timeout_s
        on_lane, over = True, False
        while not over:
            left_s = deadline - time.monotonic()
            wait_s = max(0.0, min(left_s, ASIDE_S) if on_lane else left_s)
            events = dict(self._poll.poll(1000 * wait_s))
            if not events and on_lane and time.monotonic() < deadline:
                on_lane = False
                leave_lane()
                continue
            over = self._handle(events)

    def _handle(self, events: Mapping[int, int]) -> bool:
        """Note what has come; whether the wait is over."""
        self.timed_out = not events
        hang_up = select.POLLHUP | select.POLLERR
        self.owner_gone = bool(events.get(self._owner, 0) & hang_up)
        if self._result in events and not self.drain():
            self._poll.unregister(self._result)  # closed; the child's end will follow
        if self._refusals is not None and self._refusals.descriptor in events:
            event = events[self._refusals.descriptor]
            self.refused = _attend(self._refusals, self._poll, event)
        ended = self._ended in events
        return bool(self.timed_out or self.owner_gone or self.refused or ended or self.flooded)

    def drain(self) -> bool:
        """Read what the child has sent; False at the end of the stream."""
        return _drain(self._result, self.data)

    def close(self) -> None:
        os.close(self._ended)


def oom_kills(source: Path = VMSTAT) -> int:
    """How many processes the kernel has killed for want of memory.

    Of the machine or of a control group. 0 where it does not tell; the counter is there
    since Linux 4.13.
    """
    with suppress(OSError, ValueError):
        for line in source.read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def classify(end: End, output: Path, timeout_s: float, *, expected: str = "timed") -> Failed | None:
    """The failure that this end was; None when the child sent the result `expected`.

    `output` holds what the child printed.
    """
    failure = _classify(end, output, timeout_s, expected)
    if failure is None or not end.task_limit_hit:
        return failure
    return replace(
        failure,
        message=f"{failure.message}; it was refused more processes or threads than its limit",
    )


def _classify(end: End, output: Path, timeout_s: float, expected: str) -> Failed | None:
    if end.refused is not None:
        return Failed(
            kind=FailureKind.RUN_CRASH,
            message=f"it {end.refused}, which isolation refuses, while {end.stage}",
        )
    if end.timed_out:
        return Failed(
            kind=FailureKind.RUN_TIMEOUT,
            message=f"no result within {timeout_s:g} s; it was {end.stage}",
        )
    if end.flooded:
        return Failed(
            kind=FailureKind.RUN_CRASH,
            message=f"it sent more than {RESULT_LIMIT_BYTES} bytes as its result",
        )
    output_text = _tail(output)
    if os.WIFSIGNALED(end.status):
        return _by_signal(os.WTERMSIG(end.status), end, output_text)
    if "failed" in end.result:
        return _reported(end.result["failed"])
    if expected in end.result and end.status == 0:
        return None
    memory = _memory(end, output_text)
    kind = FailureKind.RUN_CRASH if memory is None else FailureKind.OUT_OF_MEMORY
    code = os.waitstatus_to_exitcode(end.status)
    message = (
        f"it ended with exit code {code} and no result while "
        f"{end.stage}{memory or ''}{_quote(output_text)}"
    )
    return Failed(kind=kind, message=message)


def _reported(failed: Any) -> Failed:
    """The failure that a child reports, which generated code may have written in its name.

    So it is never `infrastructure`, which would be tried again.
    """
    try:
        kind, message = FailureKind(failed["kind"]), str(failed["message"])
    except (ValueError, KeyError, TypeError):
        kind, message = FailureKind.INFRASTRUCTURE, "nothing that can be read"
    if kind is FailureKind.INFRASTRUCTURE:
        return Failed(
            kind=FailureKind.RUN_CRASH,
            message=f"it reported what no child reports: {message[:QUOTED_BYTES]}",
        )
    return Failed(kind=kind, message=message)


def _memory(end: End, output_text: str) -> str | None:
    """What points to exhausted memory, in words that may be empty; None where nothing does."""
    if end.memory_bytes:
        return f", after asking for {end.memory_bytes} bytes of memory, more than its limit"
    return "" if any(text in output_text for text in _OUT_OF_MEMORY_TEXTS) else None


def _by_signal(number: int, end: End, output_text: str) -> Failed:
    stage = end.stage
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if number == signal.SIGKILL and end.oom_killed:  # not by us, who know when we kill
        return Failed(
            kind=FailureKind.OUT_OF_MEMORY,
            message=f"killed by the system (SIGKILL) while {stage}: out of memory",
        )
    if number == signal.SIGKILL:
        message = (
            f"killed from outside (SIGKILL) while {stage}; the system killed nothing for "
            f"want of memory meanwhile"
        )
        return Failed(kind=FailureKind.INFRASTRUCTURE, message=message)
    if (memory := _memory(end, output_text)) is not None:
        return Failed(
            kind=FailureKind.OUT_OF_MEMORY,
            message=f"ended by {name} while {stage}{memory}{_quote(output_text)}",
        )
    if number == signal.SIGSYS:
        message = f"ended by {name} while {stage}: it made a system call that isolation refuses"
        return Failed(kind=FailureKind.RUN_CRASH, message=message)
    if number == signal.SIGXCPU:
        return Failed(
            kind=FailureKind.RUN_TIMEOUT, message=f"used up its CPU time ({name}) while {stage}"
        )
    why = f": a file grew past {OUTPUT_LIMIT_BYTES} bytes" if number == signal.SIGXFSZ else ""
    return Failed(
        kind=FailureKind.RUN_CRASH,
        message=f"ended by {name}{why} while {stage}{_quote(output_text)}",
    )


def _drain(descriptor: int, data: bytearray) -> bool:
    """Read what is there, to just past the limit; False at the end of the stream."""
    while len(data) <= RESULT_LIMIT_BYTES:
        try:
            part = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return True
        if not part:
            return False
        data += part
    return True


def _attend(refusals: Refusals, waiting: select.poll, event: int) -> str | None:
    """What the child must be ended for, in words.

    When the child has sent its listener, that is polled until the child is gone.
    """
    before = refusals.descriptor
    if not event & select.POLLIN:
        waiting.unregister(before)
        return None
    refused = refusals.attend()
    if refusals.descriptor != before:
        waiting.unregister(before)
        waiting.register(refusals.descriptor, select.POLLIN)
    return refused


def _end(pid: int, confinement: Confinement) -> int:
    """The child's status, after killing and reaping all that it started.

    That is its group, every descendant that became ours, and all that shares our limit.
    Nothing is waited for before all is killed: a storm of processes keeps the lane's
    cores from those that are to end, and would start others meanwhile.
    """
    with confinement.sealed():
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError):  # no group before the child has made its own
                kill(pid, signal.SIGKILL)
        status = 0
        while True:  # ends: whoever is killed forks no more, and orphans of the killed come to us
            for descendant in {*_children(), *confinement.strays()}:
                with suppress(ProcessLookupError):
                    os.kill(descendant, signal.SIGKILL)
            try:
                while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                    status = reaped[1] if reaped[0] == pid else status
            except ChildProcessError:
                return status
            time.sleep(0.001)


def _children() -> list[int]:
    """This process' children."""
    me = os.getpid()
    try:
        return [int(word) for word in Path(f"/proc/{me}/task/{me}/children").read_text().split()]
    except FileNotFoundError:
        # A kernel without CONFIG_PROC_CHILDREN: only the child's own group can be found.
        return []


def _parse(data: bytearray) -> tuple[str, dict[str, Any]]:
    """The last stage and the result of the child's lines. Lines that are no JSON are skipped."""
    stage = "starting"
    result: dict[str, Any] = {}
    for line in bytes(data[: RESULT_LIMIT_BYTES + 1]).split(b"\n"):
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            stage = str(document.get("stage", stage))
            given = document.get("result", result)
            result = given if isinstance(given, dict) else result
    return stage, result


def _tail(output: Path) -> str:
    try:
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - QUOTED_BYTES))
            return file.read(QUOTED_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""


def _quote(output_text: str) -> str:
    return f"; it said: {output_text}" if output_text else ""
