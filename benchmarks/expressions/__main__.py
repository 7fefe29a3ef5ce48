"""Tune and race random expressions, beside TVM's MetaSchedule with as many trials.

    python -m benchmarks.expressions -o results --count 20 --seed 0
    python -m benchmarks.expressions -o results --only e3 --trials 64 --metaschedule 64
    python -m benchmarks.expressions -o results --report

The generator of the property tests draws the expressions. Each must end with a verified
kernel that is no slower than the default schedule; the exit status is 1 otherwise. Log,
table and picture are those of `python -m benchmarks.kernels`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.expressions.programs import cases
from benchmarks.kernels.contest import contest
from benchmarks.kernels.log import Log, run
from benchmarks.kernels.options import command_line, names, parser, plan
from benchmarks.kernels.report import Row
from tuner.errors import UsageError

NOISE = 0.05  # of a race between two libraries with the same code


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__ or "", trials=64, metaschedule=64, against="")
    options.add_argument("--count", type=int, default=20, help="expressions (default 20)")
    options.add_argument("--seed", type=int, default=0, help="of the drawing (default 0)")
    options.add_argument(
        "--small", action="store_true", help="extents of the property tests instead of up to 97"
    )
    given = options.parse_args(arguments)
    drawn = cases(given.count, given.seed, small=given.small)
    selected = names(given.only)
    unknown = set(selected) - {case.name for case in drawn}
    if unknown:
        raise UsageError(
            f"no expression is named {sorted(unknown)[0]!r}; there are "
            f"{', '.join(case.name for case in drawn)}"
        )
    log = Log(given.output.absolute())
    if not given.report:
        chosen = plan(given)
        picked = [case for case in drawn if not selected or case.name in selected]
        run(picked, log, lambda case: contest(case, chosen), again=given.again)
    print(log.report([case.name for case in drawn]))
    if not given.report:
        line = command_line(
            "benchmarks.expressions", sys.argv[1:] if arguments is None else arguments
        )
        if path := log.write_measurement("expressions", line):
            print(f"{path}: copy it to docs/measurements and add how busy the machine was")
    problems = [problem for row in log.rows().values() for problem in faults(row)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def faults(row: Row) -> list[str]:
    """What is wrong with a row: no kernel, an unverified one, or one slower than the default."""
    if row.failure is not None:
        return [f"{row.name}: no kernel: {row.failure}"]
    problems = [] if row.verified else [f"{row.name}: the kernel is not verified"]
    if row.ratios.get("default", 1.0) < 1 - NOISE:
        problems.append(
            f"{row.name}: the kernel takes {1 / row.ratios['default']:.2f} times as long as the "
            f"default schedule"
        )
    return problems


if __name__ == "__main__":
    sys.exit(main())
