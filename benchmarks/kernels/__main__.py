"""Tunes a suite and races each kernel against NumPy, PyTorch and, if asked,
MetaSchedule and oneDNN with packed weights.

    python -m benchmarks.kernels -o results [--only mm512] [--trials 256] [--seconds
    120] [--threads 1] [--metaschedule 64] python -m benchmarks.kernels -o results
    --report

One workload after the other: the kernel is tuned by the product as `tuner tune` does,
then all race in turn, in fresh processes pinned to the same cores, by the code of
`tuner bench`, between two measurements of the machine's limits. A line a workload goes
to results.jsonl; a workload that is there already is not run again. results.md and
results.svg are made of all lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.kernels.contest import contest
from benchmarks.kernels.log import Log, run
from benchmarks.kernels.options import names, parser, plan
from benchmarks.kernels.suite import SUITE, read_suite


def main(arguments: Sequence[str] | None = None) -> None:
    made = parser(__doc__ or "", trials=256, metaschedule=0, against="numpy,torch")
    made.add_argument(
        "--suite",
        type=Path,
        default=SUITE,
        help="a file of workloads (default: the one beside this program)",
    )
    given = made.parse_args(arguments)
    cases = read_suite(given.suite, names(given.only))
    log = Log(given.output.absolute())
    if not given.report:
        chosen = plan(given)
        run(cases, log, lambda case: contest(case, chosen), again=given.again)
    print(log.report([case.name for case in read_suite(given.suite)]))


if __name__ == "__main__":
    main()
