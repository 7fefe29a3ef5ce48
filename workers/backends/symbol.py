"""The C name of a candidate's kernel."""

from __future__ import annotations

from tuner.workers.fleet.messages import Problem

LIBRARY = "kernel"  # name of each candidate's library


def symbol_of(problem: Problem) -> str:
    """A name that does not depend on the config, so that equal code gives equal libraries."""
    stem = "".join(
        letter if letter.isalnum() else "_"
        for letter in problem.workload.op or problem.workload.expression.name
    )
    return f"tuned_{stem}_{problem.workload.key[:8]}"
