"""A confined process ends with whoever waits for its answer, however that ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[3]
CALLER = """
import sys
from tuner.models.process import answer_of
pipe = int(sys.argv[1])
answer_of("tests.support.endless_answer", {"pipe": pipe}, b"", files=(pipe,))
"""


@pytest.mark.slow
def test_it_dies_with_a_caller_that_is_killed() -> None:
    reads, writes = os.pipe()
    with (
        os.fdopen(reads) as said,
        subprocess.Popen(
            [sys.executable, "-c", CALLER, str(writes)], cwd=ROOT, pass_fds=(writes,)
        ) as caller,
    ):
        os.close(writes)
        confined = psutil.Process(int(said.readline()))
        assert confined.is_running()
        caller.kill()
        _, alive = psutil.wait_procs([confined], timeout=10)
        for process in alive:
            process.kill()
        assert alive == [], "a confined process outlived a killed caller"
