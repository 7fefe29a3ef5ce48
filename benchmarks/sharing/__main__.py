"""Serve three jobs of different size under each policy, simulated or real.

    python -m benchmarks.sharing [virtual|real]

`virtual` runs the driver's own pipeline and policies on a virtual clock, with recorded
durations. `real` has the orchestrator serve three jobs on this machine, once for each
policy.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.sharing.real import Measured, RealJob, serve
from benchmarks.sharing.virtual import Course, Durations, VirtualFleet, VirtualJob, simulate
from tuner.workers.fleet.policy import POLICIES

RECORDED = Path(__file__).with_name("durations.json")
ONE_LANE = VirtualFleet(lanes=(1,), builders=3)
MIXED = VirtualFleet(lanes=(1,) * 32 + (4,) * 32, builders=320)
PLAN_S = 0.8  # a search with a model plans for about so long: every 64 trials on one lane
WIDE_ROUND = 1024  # and every so many on 64 lanes, where it has twice as many in flight
SIZES = (("medium", 100), ("large", 200), ("small", 50))
WIDE = 20  # times as many trials on 64 lanes
REAL = (
    RealJob(name="medium", spec="matmul:M=192,N=192,K=192", trials=90),
    RealJob(
        name="large",
        spec="conv2d:N=1,H=28,W=28,CI=32,CO=32,KH=3,KW=3,stride=1,pad=1,layout=NHWC",
        trials=180,
    ),
    RealJob(name="small", spec="softmax:M=256,N=512", trials=45),
)


def recorded(path: Path = RECORDED) -> dict[str, Durations]:
    """The (build, lane) seconds of recorded trials by job.

    matmul 512 (medium), conv2d 56x56x64 (large), softmax 512x1024 (small).
    """
    return {
        name: [(build, lane) for build, lane in trials]
        for name, trials in json.loads(path.read_text()).items()
    }


def one_lane(share: float = 1.0) -> list[Course]:
    """A machine of four cores: builders keep up, all three jobs want the same lane."""
    durations = recorded()
    jobs = [
        VirtualJob(
            name=name, trials=round(trials * share), durations=durations[name], plan_s=PLAN_S
        )
        for name, trials in SIZES
    ]
    return [simulate(jobs, ONE_LANE, policy) for policy in POLICIES]


def mixed_lanes(share: float = 1.0) -> list[Course]:
    """Lanes of one core and of four.

    The large job's kernels have four threads, the others' one.
    """
    durations = recorded()
    jobs = [
        VirtualJob(
            name=name,
            trials=round(trials * WIDE * share),
            durations=durations[name],
            threads=4 if name == "large" else 1,
            plan_s=PLAN_S,
            round_trials=WIDE_ROUND,
        )
        for name, trials in SIZES
    ]
    return [simulate(jobs, MIXED, policy) for policy in POLICIES]


def virtual_table(title: str, courses: Sequence[Course]) -> str:
    names = [name for name, _ in SIZES]
    lines = [
        title,
        "",
        f"| policy | fairness | mean completion, s | {', s | '.join(names)}, s | lanes' "
        f"cores in use |",
    ]
    lines.append("|---" * (4 + len(names)) + "|")
    for course in courses:
        each = " | ".join(f"{course.completed_s[name]:.1f}" for name in names)
        figures = (
            f"{course.fairness:.3f} | {course.mean_completion_s:.1f} | {each} | "
            f"{course.occupancy:.1%}"
        )
        lines.append(f"| {course.policy} | {figures} |")
    return "\n".join(lines)


def real_table(rows: Sequence[Measured]) -> str:
    names = [job.name for job in REAL]
    figures = (
        "policy",
        "fairness",
        "mean completion, s",
        *(f"{name}, s" for name in names),
        "lane in use",
    )
    lines = [
        f"| {' | '.join((*figures, 'change of job, ms', 'same job, ms'))} |",
        "|---" * (6 + len(names)) + "|",
    ]
    for row in rows:
        each = " | ".join(f"{row.completed_s[name]:.1f}" for name in names)
        gaps = f"{_spread(row.switches_s)} | {_spread(row.stays_s)}"
        lines.append(
            f"| {row.policy} | {row.fairness:.3f} | {row.mean_completion_s:.1f} | {each} | "
            f"{row.occupancy:.1%} | {gaps} |"
        )
    return "\n".join(lines)


def _spread(gaps_s: Sequence[float]) -> str:
    """Median, 95th percentile, longest, and count of some seconds.

    The percentile is never beyond the longest that was seen.
    """
    if len(gaps_s) < 2:
        return f"{gaps_s[0] * 1e3:.1f} (1)" if gaps_s else "none"
    high = statistics.quantiles(gaps_s, n=20, method="inclusive")[-1]
    return (
        f"{statistics.median(gaps_s) * 1e3:.1f}, 95%: {high * 1e3:.1f}, most: "
        f"{max(gaps_s) * 1e3:.1f} ({len(gaps_s)})"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clock", nargs="?", choices=("virtual", "real"), default="virtual")
    parser.add_argument(
        "--policy", action="append", choices=tuple(POLICIES), help="only this one; may be repeated"
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the trials, e.g. 0.1")
    parser.add_argument(
        "--timeout", type=float, default=240.0, metavar="S", help="for each policy, real"
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="real: write the trials' durations"
    )
    given = parser.parse_args()
    if given.clock == "virtual":
        print(virtual_table("One lane, three builders", one_lane(given.share)), end="\n\n")
        print(virtual_table("32 lanes of one core, 32 of four", mixed_lanes(given.share)))
        return 0
    measured = []
    selected = [
        RealJob(name=job.name, spec=job.spec, trials=max(4, round(job.trials * given.share)))
        for job in REAL
    ]
    for policy in given.policy or tuple(POLICIES):
        with tempfile.TemporaryDirectory(prefix="sharing-") as folder:
            measured.append(serve(Path(folder), selected, policy, timeout_s=given.timeout))
        print(
            real_table(measured[-1:]),
            dict(measured[-1].states),
            dict(measured[-1].trials),
            file=sys.stderr,
            flush=True,
        )
        if given.record is not None:
            rounded = {
                name: [[round(b, 4), round(t, 4)] for b, t in trial_times]
                for name, trial_times in measured[-1].durations.items()
            }
            given.record.write_text(json.dumps(rounded) + "\n")
    print(real_table(measured))
    return (
        0 if all(state == "succeeded" for row in measured for state in row.states.values()) else 1
    )


if __name__ == "__main__":
    sys.exit(main())
