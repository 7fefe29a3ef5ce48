"""Child processes with a message channel, killed together with their process group.

Messages are Python objects between two processes of one installation, over a socket pair;
nothing comes from outside. The child gets the channel's descriptor as its first argument,
and sees the end of the channel when its parent dies.
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

import tuner


@dataclass(frozen=True, slots=True)
class Child:
    """A process of ours, and the connection that it ends with."""

    process: subprocess.Popen[bytes]
    connection: Connection

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """Ends the child's process group at once and reaps the child; idempotent."""
        if self.process.poll() is None:  # once reaped, the id may belong to another process
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.connection.close()

    def stop(self, *, grace_s: float) -> None:
        """Ends the channel, which asks the child to exit, and kills it after `grace_s`."""
        # Shut down instead of closed: a thread that reads it would keep it open.
        with suppress(OSError):
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
    """Starts `python -m module FD arguments…` in its own session.

    Its stdout and stderr go to `output`, by default nowhere.
    """
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
    """The channel to the parent, in a child started by `spawn`.

    The child's own children do not inherit it.
    """
    descriptor = int(argument)
    os.set_inheritable(descriptor, False)
    return Connection(descriptor)


def source_root() -> Path:
    """The folder that holds the package `tuner`, for the PYTHONPATH of a child."""
    return Path(tuner.__file__).resolve().parents[1]
