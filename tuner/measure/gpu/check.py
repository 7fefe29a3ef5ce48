"""One checked call of a kernel, in a process that owns the device.

Tools that watch a GPU's memory are put around it. Run as `python -m
tuner.measure.gpu.check TASK ANSWER`, two files of JSON. Nothing is timed, nothing
forked.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tuner.measure.gpu.session import Session, attempt, failed
from tuner.measure.outcome import FailureKind
from tuner.measure.problem import Problem
from tuner.measure.wire import Document
from tuner.runtime.cuda_driver import CudaError, NoDriver
from tuner.workload.spec import from_document


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The kernel to call."""

    workload: Document  # as `tuner.workload.spec.to_document` writes it
    seed: int  # of the inputs
    library: str  # path
    symbol: str
    poisoned: bool = True  # outputs are filled before
    ordinal: int = 0  # of the device


def check(subject: Subject) -> Document:
    """{"checked": {"max_rel_error"}} or {"failed": {"kind", "message"}}."""
    problem = Problem(from_document(subject.workload), subject.seed)
    try:
        # Comes first: a tool waits for the first call of the driver, and the reference of
        # a large workload takes long.
        session = Session(subject.ordinal, problem)
    except (NoDriver, CudaError) as error:
        return failed(FailureKind.INFRASTRUCTURE, f"gpu:{subject.ordinal} cannot be used: {error}")
    return attempt(
        partial(session.check, subject.library, subject.symbol, poisoned=subject.poisoned)
    )[0]


def main(task: str, answer: str) -> int:
    stated: dict[str, Any] = json.loads(Path(task).read_text())
    Path(answer).write_text(json.dumps(check(Subject(**stated))))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
