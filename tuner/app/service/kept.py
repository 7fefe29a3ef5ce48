"""Keeps a process running for a block: restarts it when it ends by itself."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

STOP_S = 30.0  # for a process that is asked to end, before it is killed
PAUSE_S = 1.0  # before the first restart, doubled for each further one
LONGEST_PAUSE_S = 30.0
STEADY_S = 600.0  # after so long a life, the next restart is a first one again


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _close_input(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


class _Keeper(threading.Thread):
    """The thread that waits for the process and restarts it."""

    def __init__(
        self, start: Callable[[], subprocess.Popen[bytes]], name: str, note: Callable[[str], None]
    ) -> None:
        super().__init__(name=f"keeper of the {name}", daemon=True)
        self._start, self._what, self._note = start, name, note
        self._lock, self._over = threading.Lock(), threading.Event()
        self._process = start()  # here, so that a first start that fails raises in the caller

    def run(self) -> None:
        pause_s = PAUSE_S
        while True:
            began_s = time.monotonic()
            status = self._process.wait()  # at once where it could not be started again
            if self._over.is_set():
                return
            if time.monotonic() - began_s > STEADY_S:
                pause_s = PAUSE_S
            _close_input(self._process)
            self._note(
                f"the {self._what} ended with status {status}; it is started again in {pause_s:g} s"
            )
            if self._over.wait(pause_s):
                return
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)
            with self._lock:
                if self._over.is_set():
                    return
                try:
                    self._process = self._start()
                except OSError as error:  # no memory or no process to be had at the moment
                    self._note(f"the {self._what} cannot be started: {error}")

    def end(self) -> None:
        """Ends the process, by force after STOP_S, and the thread."""
        with self._lock:
            self._over.set()
        self._process.terminate()
        try:
            self._process.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.join()
        _close_input(self._process)


@contextmanager
def kept(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    name: str,
    note: Callable[[str], None] = _note,
) -> Iterator[None]:
    """Runs `command` for the block and restarts it whenever it ends.

    Its standard input is closed when this process dies, so that it can end too. `note`
    gets a message for each restart.
    """

    def start() -> subprocess.Popen[bytes]:
        # In a session of its own, so that Ctrl-C reaches it only through this process.
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, env=dict(environment), start_new_session=True
        )

    keeper = _Keeper(start, name, note)
    keeper.start()
    try:
        yield
    finally:
        keeper.end()
