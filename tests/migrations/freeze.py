"""Writes tests/migrations/frozen/<release>.sqlite: a small database of this release,
kept so that each later one upgrades it.

Run once for each release: `python -m tests.migrations.freeze`. Files of past releases
are never written again.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.support.database_samples import ManualClock, add_claimed, failed, sample_kernel, timed
from tuner.db import events, jobs, keys, leases, trials
from tuner.db.backup import backup
from tuner.db.engine import open_database
from tuner.db.promotions import promote

FROZEN = Path(__file__).parent / "frozen"


def freeze(file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock()
        database = open_database(Path(folder) / "tuner.sqlite", clock=clock)
        lease = add_claimed(database, 8, 9)
        with database.write() as session:
            for trial in (timed(0, 2e-3), failed(1), timed(2)):
                trials.record(session, lease, trial)
            first = promote(session, sample_kernel(session, median_s=2e-3), lease=lease)
            clock.advance(1)
            promote(session, sample_kernel(session, previous=first.id), lease=lease)
            events.append(session, lease.job_id, "note", {"text": "frozen"})
            leases.finish(session, lease, jobs.SUCCEEDED)
            keys.create(session, name="frozen", scopes=["read"])
        with database.write() as session:
            jobs.create(
                session,
                jobs.NewJob(workloads=(f"{8:064x}",), target=first.target, threads=2, trials=3),
            )
        backup(database, file)
        database.close()


if __name__ == "__main__":
    target = FROZEN / f"{sys.argv[1] if len(sys.argv) > 1 else version('tuner')}.sqlite"
    FROZEN.mkdir(exist_ok=True)
    freeze(target)
    print(f"{target}: {target.stat().st_size} bytes")
