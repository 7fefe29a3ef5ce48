"""Random expressions, each tuned by the product and by TVM's MetaSchedule with as many
trials, and raced.

    python -m benchmarks.expressions -o results [--only e3] [--count 20] [--seed 0]
    [--trials 64] [--metaschedule 64] python -m benchmarks.expressions -o results
    --report

The expressions are drawn by the generator of the property tests. Each must end with a
verified kernel, no slower than the default schedule; the program ends with 1 otherwise.
Log, table and picture are those of `python -m benchmarks.kernels`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.expressions.programs import cases
from benchmarks.kernels.contest import contest
from benchmarks.kernels.log import Log, run
from benchmarks.kernels.options import names, parser, plan
from benchmarks.kernels.report import Row
from tuner.errors import UsageError

NOISE = 0.05  # of a race between two libraries with the same code


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser(__doc__ or "", trials=64, metaschedule=64, against="")
    made.add_argument("--count", type=int, default=20, help="expressions (default 20)")
    made.add_argument("--seed", type=int, default=0, help="of the drawing (default 0)")
    made.add_argument(
        "--small", action="store_true", help="extents of the property tests instead of up to 97"
    )
    given = made.parse_args(arguments)
    drawn = cases(given.count, given.seed, small=given.small)
    wanted = names(given.only)
    unknown = set(wanted) - {case.name for case in drawn}
    if unknown:
        raise UsageError(
            f"no expression is named {sorted(unknown)[0]!r}; there are "
            f"{', '.join(case.name for case in drawn)}"
        )
    log = Log(given.output.absolute())
    if not given.report:
        chosen = plan(given)
        picked = [case for case in drawn if not wanted or case.name in wanted]
        run(picked, log, lambda case: contest(case, chosen), again=given.again)
    print(log.report([case.name for case in drawn]))
    found = [fault for row in log.rows().values() for fault in faults(row)]
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


def faults(row: Row) -> list[str]:
    """What must not be: no kernel, one that is not verified, one slower than the
    default schedule."""
    if row.failure is not None:
        return [f"{row.name}: no kernel: {row.failure}"]
    found = [] if row.verified else [f"{row.name}: the kernel is not verified"]
    if row.ratios.get("default", 1.0) < 1 - NOISE:
        found.append(
            f"{row.name}: the kernel takes {1 / row.ratios['default']:.2f} times as long as the "
            f"default schedule"
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
