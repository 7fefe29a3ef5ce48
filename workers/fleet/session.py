"""A fleet's session: its private directory, and the environment of the driver process.

- `empty` is the driver's working directory, because Ray puts that directory on its
  workers' path, and a stray `db.py` there would be imported.
- `build` holds compiled candidates.
- `scratch` is the TMPDIR of all processes.
- `token` is the cluster's own secret.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from pathlib import Path

from tuner.scratch import remove_leftovers
from tuner.workers.fleet.channel import source_root

# Characters of the folder that contains the session: the paths of Ray's sockets, far below
# it, may have 107 characters.
LONGEST_BASE = 18
PREFIX = "tuner-fleet-"


def make_session() -> Path:
    """A new private directory: `empty`, `build`, `scratch`, `token`.

    Whoever makes it holds it by `scratch.hold`. Those of killed processes are removed first.
    """
    base = Path(tempfile.gettempdir())
    base = base if len(str(base)) <= LONGEST_BASE else Path("/tmp")
    remove_leftovers(PREFIX, base)
    session = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
    (session / "empty").mkdir()
    (session / "build").mkdir()
    (session / "scratch").mkdir()
    token = session / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32), encoding="ascii")
    return session


def remove_session(session: Path) -> None:
    shutil.rmtree(session, ignore_errors=True)


def driver_environment(session: Path, *, local: bool) -> dict[str, str]:
    """The environment of the driver process.

    Ray reads most of these when it is imported, so that they cannot be set later. The
    operator sets the token of an existing cluster (`RAY_AUTH_TOKEN` or
    `RAY_AUTH_TOKEN_PATH`).
    """
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TUNER_")
    }
    environment |= {
        "PYTHONPATH": str(source_root()),
        # files that a killed worker leaves behind are removed with the session
        "TMPDIR": str(session / "scratch"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_metrics_collection": "0",
        "RAY_DEDUP_LOGS": "0",
        # Ray's default of 15 would make the process that feeds a lane wait for all others
        "RAY_worker_niceness": "0",
        # without it, the head would record every call for a dashboard that does not run
        "RAY_task_events_report_interval_ms": "0",
        # Ray's processes have dozens of threads, each of which would get an arena of its own
        "MALLOC_ARENA_MAX": "2",
        # after this time a lost head ends the driver, and the fleet starts again
        "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    if local:
        environment.pop("RAY_AUTH_TOKEN", None)
        environment.pop("RAY_ADDRESS", None)
        environment |= {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(session / "token"),
            # If off, Ray listens on 127.0.0.1 only, on every operating system.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        }
    return environment
