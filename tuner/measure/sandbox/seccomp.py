"""The filter of system calls that a candidate's child runs under.

Classic BPF as linux/filter.h and linux/seccomp.h define it, installed as the last step.
Calls that no kernel makes go to the supervisor (SECCOMP_RET_USER_NOTIF), which can name
them. Where it cannot listen they kill.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.measure.sandbox.system_calls import (
    CHANGING,
    CLONING,
    CONTROLLING,
    HARMLESS,
    MACHINES,
    MAPPING,
    OFFENCES,
    OPENING,
    PASSES,
    SIGNALLING,
    CallTable,
    numbers,
)

LISTENER_CHANNEL = 4  # the descriptor over which the child hands its listener to the supervisor

_LD, _RET = 0x20, 0x06  # BPF_LD|W|ABS, BPF_RET|K
_JEQ, _JGT, _JGE, _JSET = 0x15, 0x25, 0x35, 0x45  # BPF_JMP|…|K
# Offsets in struct seccomp_data. Arguments are 64 bits, little-endian on all of MACHINES.
_NR, _ARCH, _ARGS = 0, 4, 16
_KILL, _NOTIFY, _ALLOW = 0x80000000, 0x7FC00000, 0x7FFF0000  # SECCOMP_RET_*
_ERRNO = 0x00050000
# Without the last, older kernels slow the child's loads and stores.
_SET_MODE_FILTER, _NEW_LISTENER, _SPEC_ALLOW = 1, 8, 4
_CALL: Mapping[str, int] = {"x86_64": 317, "aarch64": 277}  # of seccomp itself
_CLONE_THREAD = 0x00010000
# PR_SET_NAME, PR_GET_NAME, PR_SET_VMA: all that a C library's threads and malloc ask for.
_PRCTLS = (15, 16, 0x53564D41)
_FCNTLS = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX: signals to others by way of a file
_IOCTLS = (0x8901, 0x8902, 0x5412)  # FIOSETOWN, SIOCSPGRP, TIOCSTI
_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV, _SEND
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")  # struct seccomp_notif
_ANSWER = struct.Struct("=QqiI")  # struct seccomp_notif_resp
_CONTINUE = 1

_PID = 0xFFFFFFFF  # in the place of the child's own number until that is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter for one machine.

    The child's own process number is filled in when it is installed.
    """

    code: bytes  # of 8-byte instructions
    own: tuple[int, ...]  # offsets of the 32-bit fields that stand for the process number
    listening: bool  # whether the supervisor decides about some calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A system call that waits for the supervisor's answer."""

    id: int
    pid: int  # of the calling thread
    number: int
    arguments: tuple[int, ...]


def kernel_filter(
    machine: str, *, listening: bool, reported_bytes: int | None, threads: bool = True
) -> Filter:
    """What generated code may call: memory, time, threads, its own descriptors.

    Mappings larger than `reported_bytes` are reported to the supervisor. Without
    `threads`, starting one is an offence.
    """
    offence = _NOTIFY if listening else _KILL
    program = _Program(machine)
    if listening and reported_bytes is not None:
        program.mapping(reported_bytes)
    else:
        program.each(MAPPING, _ALLOW)
    program.each(HARMLESS, _ALLOW)
    # Where nobody listens, the fence around files alone decides.
    program.each(OPENING, _NOTIFY if listening else _ALLOW)
    if threads:
        program.cloning(offence)
    else:
        program.each(CLONING, offence)
    program.signalling(offence)
    program.controlling()
    program.each(CHANGING, _ERRNO | errno.EACCES)
    program.each(OFFENCES, offence)
    return program.done(listening)


def library_filter(machine: str) -> Filter:
    """The same for libraries of known origin.

    What they must not do is refused instead of ending them: they try, and do without.
    """
    program = _Program(machine)
    for table in (MAPPING, HARMLESS, OPENING, CHANGING):
        program.each(table, _ALLOW)
    program.cloning(_ERRNO | errno.EAGAIN)
    program.signalling(_ERRNO | errno.EPERM)
    program.controlling()
    program.each(OFFENCES, _ERRNO | errno.EPERM)
    return program.done(listening=False)


def compiler_filter(machine: str) -> Filter:
    """What a compiler and its passes may call: files as the fence lets them, and each
    other.

    What they must not do is refused.
    """
    program = _Program(machine)
    for table in (MAPPING, HARMLESS, OPENING, CHANGING, CLONING, PASSES):
        program.each(table, _ALLOW)
    program.signalling(_ERRNO | errno.EPERM)
    program.controlling()
    program.each(OFFENCES, _ERRNO | errno.EPERM)
    return program.done(listening=False)


def install(calls: Filter, machine: str) -> int | None:
    """Put the calling thread under the filter for good.

    Returns the listener's descriptor where there is one. Needs no_new_privs. Raises
    OSError.
    """
    code = bytearray(calls.code)
    for offset in calls.own:
        struct.pack_into("=I", code, offset, os.getpid())
    buffer = (ctypes.c_char * len(code)).from_buffer(code)
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    flags = _SPEC_ALLOW | (_NEW_LISTENER if calls.listening else 0)
    libc = ctypes.CDLL(None, use_errno=True)
    status: int = libc.syscall(
        ctypes.c_long(_CALL[machine]),
        ctypes.c_ulong(_SET_MODE_FILTER),
        ctypes.c_ulong(flags),
        program,
    )
    if status < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
    return status if calls.listening else None


def receive(listener: int) -> Notification | None:
    """The call that waits for an answer; None when its thread is gone."""
    data = bytearray(_NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, data)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EINTR):
            return None
        raise
    identity, pid, _, number, _, _, *arguments = _NOTIFICATION.unpack(data)
    return Notification(id=identity, pid=pid, number=number, arguments=tuple(arguments))


def answer(listener: int, notification: Notification, refusal: int | None) -> None:
    """Let the call go on, or make it fail with the error number `refusal`.

    Does nothing when its thread is gone.
    """
    data = _ANSWER.pack(
        notification.id, 0, 0 if refusal is None else -refusal, _CONTINUE if refusal is None else 0
    )
    try:
        fcntl.ioctl(listener, _SEND, data)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


class _Program:
    """Assembles a filter. Each block begins and ends with the call's number loaded."""

    def __init__(self, machine: str) -> None:
        self._machine, architecture = machine, MACHINES[machine]
        self._code: list[tuple[int, int, int, int]] = []
        self._emit(_LD, _ARCH)
        self._emit(_JEQ, architecture.audit, 1, 0)
        self._emit(_RET, _KILL)
        self._emit(_LD, _NR)
        if architecture.second_table is not None:
            self._emit(_JGE, architecture.second_table, 0, 1)
            self._emit(_RET, _ERRNO | errno.ENOSYS)

    def each(self, table: CallTable, action: int) -> None:
        """Do `action` for every call of a table."""
        for number in numbers(table, self._machine).values():
            self._emit(_JEQ, number, 0, 1)
            self._emit(_RET, action)

    def mapping(self, limit: int) -> None:
        """mmap: the supervisor decides about a large piece of memory, so that it learns of it."""
        for number in numbers(MAPPING, self._machine).values():
            self._block(number, [
                (_LD, 0, 0, _ARGS + 8 + 4), (_JGT, 3, 0, limit >> 32), (_JEQ, 0, 3, limit >> 32),
                (_LD, 0, 0, _ARGS + 8), (_JGT, 0, 1, limit & 0xFFFFFFFF), (_RET, 0, 0, _NOTIFY),
                (_RET, 0, 0, _ALLOW),
            ])  # fmt: skip

    def cloning(self, action: int) -> None:
        """Threads, no processes.

        clone3 hides its flags behind a pointer. It is not listed, so libraries fall
        back on clone.
        """
        for number in numbers(CLONING, self._machine).values():
            self._block(
                number,
                [
                    (_LD, 0, 0, _ARGS),
                    (_JSET, 0, 1, _CLONE_THREAD),
                    (_RET, 0, 0, _ALLOW),
                    (_RET, 0, 0, action),
                ],
            )

    def signalling(self, action: int) -> None:
        """Signals to the process itself; `action` for others."""
        for number in numbers(SIGNALLING, self._machine).values():
            self._block(
                number,
                [
                    (_LD, 0, 0, _ARGS),
                    (_JEQ, 0, 1, _PID),
                    (_RET, 0, 0, _ALLOW),
                    (_RET, 0, 0, action),
                ],
            )

    def controlling(self) -> None:
        """Calls of many functions, by the function.

        No signals to other processes, and no change of their limits.
        """
        calls, refuse = numbers(CONTROLLING, self._machine), _ERRNO | errno.EPERM
        self._choice(calls["fcntl"], _ARGS + 8, _FCNTLS, refuse, _ALLOW)
        self._choice(calls["ioctl"], _ARGS + 8, _IOCTLS, refuse, _ALLOW)
        self._choice(calls["prctl"], _ARGS, _PRCTLS, _ALLOW, refuse)
        self._choice(calls["prlimit64"], _ARGS, (0, _PID), _ALLOW, refuse)
        # Until the channel is closed.
        self._choice(calls["sendmsg"], _ARGS, (LISTENER_CHANNEL,), _ALLOW, refuse)

    def done(self, listening: bool) -> Filter:
        # Libraries do without calls that a kernel does not know.
        self._emit(_RET, _ERRNO | errno.ENOSYS)
        own = tuple(
            index * 8 + 4
            for index, (code, _, _, k) in enumerate(self._code)
            if k == _PID and code == _JEQ
        )
        return Filter(
            code=b"".join(struct.pack("=HBBI", *instruction) for instruction in self._code),
            own=own,
            listening=listening,
        )

    def _choice(
        self, number: int, argument: int, values: tuple[int, ...], then: int, otherwise: int
    ) -> None:
        jumps = [(_JEQ, len(values) - index, 0, value) for index, value in enumerate(values)]
        self._block(
            number, [(_LD, 0, 0, argument), *jumps, (_RET, 0, 0, otherwise), (_RET, 0, 0, then)]
        )

    def _block(self, number: int, body: list[tuple[int, int, int, int]]) -> None:
        """Decide the call `number` by `body`, which ends in returns.

        So nothing behind it sees another value loaded.
        """
        self._emit(_JEQ, number, 0, len(body))
        self._code += body

    def _emit(self, code: int, k: int, true: int = 0, false: int = 0) -> None:
        self._code.append((code, true, false, k))
