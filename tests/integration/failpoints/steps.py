"""What the workers commit beside a job's trials, each as a step of its own: prepared,
done (and killed in it), and judged.

As a program, does one: `python -m tests.integration.failpoints.steps STEP DATABASE FOLDER`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.integration.failpoints.job_steps import JOB_STEPS
from tests.integration.failpoints.kernel_steps import KERNEL_STEPS
from tests.integration.failpoints.machine_steps import MACHINE_STEPS
from tests.integration.failpoints.step import Step
from tuner.db.engine import open_database

STEPS: Mapping[str, Step] = {**JOB_STEPS, **MACHINE_STEPS, **KERNEL_STEPS}


if __name__ == "__main__":
    opened = open_database(sys.argv[2])
    STEPS[sys.argv[1]].act(opened, Path(sys.argv[3]))
    opened.close()
