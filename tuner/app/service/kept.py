"""A process that is kept running: started again when it ends by itself, ended with the
block that keeps it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

STOP_S = 30.0  # for the process to end in good order once it is asked to
PAUSE_S = 1.0  # before it is started again, doubled each time it ends at once
LONGEST_PAUSE_S = 30.0


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


class _Kept(threading.Thread):
    def __init__(
        self, start: Callable[[], subprocess.Popen[bytes]], name: str, note: Callable[[str], None]
    ) -> None:
        super().__init__(name=f"keeper of the {name}", daemon=True)
        self._start, self._what, self._note = start, name, note
        self._lock, self._over = threading.Lock(), threading.Event()
        self._process = (
            start()
        )  # here, so that what makes it impossible is raised where it was asked for

    def run(self) -> None:
        pause_s = PAUSE_S
        while True:
            status = self._process.wait()  # at once where it could not be started again
            if self._over.is_set():
                return
            _let_go(self._process)
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
        with self._lock:
            self._over.set()
        self._process.terminate()
        try:
            self._process.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.join()
        _let_go(self._process)


@contextmanager
def kept(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    name: str,
    note: Callable[[str], None] = _note,
) -> Iterator[None]:
    """Runs `command` for the block. It learns from its standard input, which is closed
    then, when this process is gone."""

    def start() -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C reaches it through this process alone, in good order.
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, env=dict(environment), start_new_session=True
        )

    keeper = _Kept(start, name, note)
    keeper.start()
    try:
        yield
    finally:
        keeper.end()
