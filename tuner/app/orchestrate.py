"""The orchestrator of `tuner serve`, a process of its own: `python -m tuner.app.orchestrate`; settings come by the environment.

It ends on SIGTERM, and when its standard input is closed: then the process that started it is gone. A job in progress goes back
to the queue.
"""

from __future__ import annotations

import signal
import sys
import threading

from db.engine import open_database
from tuner.app.jobs import orchestrator_options
from tuner.app.machine import checked_target
from tuner.settings import load_settings
from workers.orchestrator import Orchestrator


def main() -> None:
    settings = load_settings().values
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stop.set())
    threading.Thread(target=_watch_owner, args=(stop,), daemon=True, name="owner").start()
    database = open_database(settings.db, create=False)
    try:
        orchestrator = Orchestrator(database, checked_target(settings), orchestrator_options(settings))
        orchestrator.serve(stop, on_error=lambda text: print(f"orchestrator: {text}", file=sys.stderr, flush=True))
    finally:
        database.close()


def _watch_owner(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


if __name__ == "__main__":
    main()
