"""A child process of our own with a message channel: spawned, spoken to with a
deadline, killed with its whole group.

Messages are Python objects between two processes of one checkout over a socket pair;
nothing comes from outside. The child finds the channel's descriptor in its first
argument, and sees the end of the channel when its parent dies.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO


@dataclass(frozen=True, slots=True)
class Child:
    process: subprocess.Popen[bytes]
    connection: Connection

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """Ends the child's process group at once and reaps the child; idempotent."""
        if self.process.poll() is None:  # once reaped, the number may belong to somebody else
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.connection.close()

    def stop(self, *, grace_s: float) -> None:
        """Ends the channel, which asks the child to leave, and kills it when it has not
        left in time."""
        with suppress(
            OSError
            # shut down, not closed: a thread of ours may be reading it, which would keep a
            # closed one open
        ):
            end = socket.socket(fileno=os.dup(self.connection.fileno()))
            end.shutdown(socket.SHUT_RDWR)
            end.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=grace_s)
        self.kill()


def spawn(
    module: str,
    *arguments: str,
    directory: Path,
    environment: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
    flags: Sequence[str] = (),
) -> Child:
    """Starts `python -m module FD arguments…` in its own session, with stdout and
    stderr going to `output` (default: nowhere)."""
    ours, theirs = socket.socketpair()
    sink: IO[bytes] | int = subprocess.DEVNULL if output is None else output
    with theirs:
        process = subprocess.Popen(
            [sys.executable, *flags, "-m", module, str(theirs.fileno()), *arguments],
            cwd=directory,
            env=None if environment is None else dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    return Child(process, Connection(ours.detach()))


def parent_channel(argument: str) -> Connection:
    """The channel to the parent, in a child started by `spawn`; not inherited by the
    child's own children."""
    descriptor = int(argument)
    os.set_inheritable(descriptor, False)
    return Connection(descriptor)


def source_root() -> Path:
    """The folder that holds the packages `tuner`, `db` and `workers`: what a child
    needs on its PYTHONPATH."""
    return Path(__file__).resolve().parent.parent
