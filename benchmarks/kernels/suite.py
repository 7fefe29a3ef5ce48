"""A suite of workloads by name, read from a file of catalogue specs."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from benchmarks.kernels.contest import Case
from tuner.errors import UsageError
from tuner.workload.spec import parse_spec

SUITE = Path(__file__).with_name("suite.json")


# Suites of the pages of figures, by the file's stem where it is not `kernels-<stem>`.
TITLES = {"suite": "kernels", "prepacked": "kernels-constant-weights"}


def suite_key(path: Path, *, threads: int, metaschedule: int) -> str:
    """The name of the suite in docs/measurements."""
    key = TITLES.get(path.stem, f"kernels-{path.stem}")
    if key != "kernels":
        return key
    return "kernels-metaschedule" if metaschedule else "kernels-two-threads" if threads > 1 else key


def read_suite(path: Path = SUITE, only: Collection[str] = ()) -> list[Case]:
    """The cases in the file's order, those named in `only` alone where there are any.
    Raises UsageError."""
    try:
        rows = json.loads(path.read_text())["workloads"]
        cases = [Case(name=str(row["name"]), workload=parse_spec(str(row["spec"]))) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f'{path} is no suite: {error}; it is {{"workloads": [{{"name", "spec"}}]}}'
        ) from error
    unknown = set(only) - {case.name for case in cases}
    if unknown:
        names = ", ".join(case.name for case in cases)
        raise UsageError(f"{path} has no workload {sorted(unknown)[0]!r}; it has {names}")
    return [case for case in cases if not only or case.name in only]
