"""Tune a suite of workloads and race each kernel against NumPy and PyTorch.

    python -m benchmarks.kernels -o results --trials 256 --seconds 120 --threads 1
    python -m benchmarks.kernels -o results --only mm512,fc16 --metaschedule 64
    python -m benchmarks.kernels -o results --report

`--metaschedule TRIALS` adds TVM's MetaSchedule to the race. `--against torch,onednn`
chooses the libraries; oneDNN packs constant weights as it likes.

Workloads run one after the other. The product tunes the kernel as `tuner tune` does.
Then all race in turn, in fresh processes pinned to the same cores, by the code of `tuner
bench`. The limits of the machine are measured before the race and after it.

Each workload is a line of results.jsonl, and is not run again. From all lines come
results.md, results.svg, and a measurement that can be copied to docs/measurements.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.kernels.contest import contest
from benchmarks.kernels.log import Log, run
from benchmarks.kernels.options import command_line, names, parser, plan
from benchmarks.kernels.suite import SUITE, read_suite, suite_key


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser(__doc__ or "", trials=256, metaschedule=0, against="numpy,torch")
    options.add_argument(
        "--suite",
        type=Path,
        default=SUITE,
        help="a file of workloads (default: the one beside this program)",
    )
    given = options.parse_args(arguments)
    cases = read_suite(given.suite, names(given.only))
    log = Log(given.output.absolute())
    if not given.report:
        chosen = plan(given)
        run(cases, log, lambda case: contest(case, chosen), again=given.again)
    print(log.report([case.name for case in read_suite(given.suite)]))
    if given.report:
        return
    key = suite_key(given.suite, threads=given.threads, metaschedule=given.metaschedule)
    command = command_line("benchmarks.kernels", sys.argv[1:] if arguments is None else arguments)
    if path := log.write_measurement(key, command):
        print(f"{path}: copy it to docs/measurements and add how busy the machine was")


if __name__ == "__main__":
    main()
